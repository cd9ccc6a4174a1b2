#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace snug {
namespace {

Error cannot_open(const std::filesystem::path& path, const char* why) {
  return {ErrorCode::bad_file, fmt::format("{}: cannot be opened: {}", path.string(), why),
          "check the path and its permissions"};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return cannot_open(path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return cannot_open(path, "not a regular file");
  }
  if (info.st_size == 0) {
    ::close(fd);
    return Error{ErrorCode::bad_file, fmt::format("{}: the file is empty", path.string()), "fetch it again"};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) return cannot_open(path, std::strerror(error));
  MappedFile file;
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  file.path_ = path;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

namespace {

// madvise wants whole pages: outward for hints that harm nothing, inward for dropping.
void advise(const std::byte* base, std::size_t offset, std::size_t size, int advice, bool inward) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t begin = offset, end = offset + size;
  begin = inward ? (begin + page - 1) / page * page : begin / page * page;
  if (inward) end = end / page * page;
  if (end > begin) ::madvise(const_cast<std::byte*>(base) + begin, end - begin, advice);
}

}  // namespace

void MappedFile::will_need(std::size_t offset, std::size_t size) const {
  advise(data_, offset, size, MADV_WILLNEED, false);
}

void MappedFile::drop(std::size_t offset, std::size_t size) const {
  advise(data_, offset, size, MADV_DONTNEED, true);
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return cannot_open(path, "no such file");
  const auto size = std::filesystem::file_size(path, code);
  if (code) return cannot_open(path, code.message().c_str());
  if (size > max_bytes) {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: {} bytes, more than the {} allowed for this kind of file", path.string(),
                             size, max_bytes),
                 "check that this is the right file"};
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return cannot_open(path, std::strerror(errno));
  std::string text(static_cast<std::size_t>(size), '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (in.gcount() != static_cast<std::streamsize>(size)) return cannot_open(path, "could not be read whole");
  return text;
}

Status write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const std::filesystem::path part = path.string() + ".part";
  std::error_code code;
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    out.flush();
    if (!out) {
      Error error{ErrorCode::failed,
                  fmt::format("{}: cannot be written: {}", part.string(), std::strerror(errno)),
                  "check free space and permissions"};
      std::filesystem::remove(part, code);
      return error;
    }
  }
  std::filesystem::rename(part, path, code);
  if (code) {
    Error error{ErrorCode::failed, fmt::format("{}: cannot be written: {}", path.string(), code.message()),
                "check free space and permissions"};
    std::filesystem::remove(part, code);
    return error;
  }
  return {};
}

}  // namespace snug
