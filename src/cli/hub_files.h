// The hub client's files on disk: safe names, checksums, the manifest of what is complete, the lock.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"

namespace snug::cli {

inline constexpr const char* kManifestName = ".snug.json";

struct HubFile {
  std::string path;  // in the repository, '/' between parts
  std::int64_t size = 0;
  std::string hash;  // hexadecimal: 64 digits are SHA-256 of the content, 40 are git's SHA-1 of the blob
};

// Relative, without empty, "." or ".." parts, backslashes or control characters, and no name the client uses
// itself.
bool is_safe_path(std::string_view path);

// Whether `hash` is 40 or 64 lower-case hexadecimal digits.
bool is_hash(std::string_view hash);

// Hash of a file's content, of the kind that `file.hash` has; reads it once, in pieces.
Result<std::string> hash_of(const std::filesystem::path& path, const HubFile& file);

// Files known to be complete, by path; kept in FOLDER/.snug.json. A manifest that is missing or unreadable is
// empty: the files are then hashed again.
struct Manifest {
  std::map<std::string, HubFile, std::less<>> files;
};
Manifest read_manifest(const std::filesystem::path& folder);
Status write_manifest(const std::filesystem::path& folder, const Manifest& manifest, std::string_view repo,
                      std::string_view revision);

// Holds FOLDER/.snug.lock for as long as it lives, so that two pulls do not write the same files.
class FolderLock {
 public:
  // failed where another process holds it, or the folder cannot be written.
  static Result<FolderLock> take(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace snug::cli
