// Files: a read-only memory map, and small text files with a size limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.h"

namespace snug {

// A whole file mapped read-only. Pages are shared with the page cache; nothing is copied.
// Owns the mapping; moving it keeps the address.
class MappedFile {
 public:
  // bad_file if it is missing, not a regular file, or empty.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Tells the kernel that these bytes will be read soon, or are no longer needed (they stay readable).
  void will_need(std::size_t offset, std::size_t size) const;
  void drop(std::size_t offset, std::size_t size) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::filesystem::path path_;
};

// The whole text of a small file; bad_file if missing or larger than max_bytes.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes);

// Writes to a temporary file beside `path` and renames it, so that a reader never sees half a file.
Status write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace snug
