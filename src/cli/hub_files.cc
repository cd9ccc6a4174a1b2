#include "cli/hub_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace snug::cli {
namespace {

constexpr std::size_t kSha1Digits = 40, kSha256Digits = 64;
constexpr std::size_t kMaxManifestBytes = 64 << 20;
constexpr const char* kLockName = ".snug.lock";

struct DigestDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > 1024 || path.ends_with(".part")) return false;
  if (path == kManifestName || path == kLockName) return false;
  for (const char c : path) {
    if (c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  }
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return true;
}

bool is_hash(std::string_view hash) {
  return (hash.size() == kSha1Digits || hash.size() == kSha256Digits) &&
         std::all_of(hash.begin(), hash.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<std::string> hash_of(const std::filesystem::path& path, const HubFile& file) {
  const bool is_git_blob = file.hash.size() == kSha1Digits;
  const std::unique_ptr<EVP_MD_CTX, DigestDeleter> context(EVP_MD_CTX_new());
  bool ok = context != nullptr &&
            EVP_DigestInit_ex(context.get(), is_git_blob ? EVP_sha1() : EVP_sha256(), nullptr) == 1;
  if (ok && is_git_blob) {
    const std::string header = fmt::format("blob {}", file.size);
    ok = EVP_DigestUpdate(context.get(), header.c_str(), header.size() + 1) == 1;  // with its final zero
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return Error{ErrorCode::failed,
                 fmt::format("{}: cannot be read back: {}", path.string(), std::strerror(errno)),
                 "check its permissions"};
  }
  std::vector<char> buffer(std::size_t{1} << 20);
  while (ok && in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    ok = EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(in.gcount())) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (!ok || in.bad() || EVP_DigestFinal_ex(context.get(), digest.data(), &size) != 1) {
    return Error{ErrorCode::failed, fmt::format("{}: its checksum could not be computed", path.string()),
                 "check the disk and the installation of OpenSSL"};
  }
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  Manifest manifest;
  const auto path = folder / kManifestName;
  const auto text = read_text_file(path, kMaxManifestBytes);
  if (!text.ok()) return manifest;
  const auto json = parse_json(text.value(), path.string());
  if (!json.ok() || !json->is_object() || !json->contains("files") || !(*json)["files"].is_object())
    return manifest;
  for (const auto& [name, entry] : (*json)["files"].items()) {
    const auto size = optional_int(entry, "size", name, 0, INT64_MAX);
    const auto hash = optional_string(entry, "hash", name);
    if (!size.ok() || !hash.ok() || !size.value() || !hash.value()) continue;
    manifest.files[name] = {name, **size, **hash};
  }
  return manifest;
}

Status write_manifest(const std::filesystem::path& folder, const Manifest& manifest, std::string_view repo,
                      std::string_view revision) {
  Json files = Json::object();
  for (const auto& [name, file] : manifest.files) files[name] = {{"size", file.size}, {"hash", file.hash}};
  const Json json = {{"repo", repo}, {"revision", revision}, {"files", files}};
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  return write_file_atomically(folder / kManifestName, std::as_bytes(std::span(text)));
}

Result<FolderLock> FolderLock::take(const std::filesystem::path& folder) {
  const auto path = folder / kLockName;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return Error{ErrorCode::failed,
                 fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)),
                 "check permissions, or choose another cache folder"};
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    return Error{ErrorCode::failed,
                 fmt::format("{}: another pull of this repository is running", folder.string()),
                 "wait for it to end"};
  }
  return FolderLock(fd);
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);  // which lets go of the lock
}

}  // namespace snug::cli
