#include "cli/hub_download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "cli/hub_http.h"

namespace snug::cli {
namespace {

constexpr std::size_t kMaxTextBytes = 64 << 20;

bool worth_another_try(long status) {
  return status >= 500 || status == 408 || status == 429;
}

// The error that an HTTP status stands for.
Error error_of(const PullOptions& options, const std::string& url, const HttpHead& head) {
  const std::string repo = fmt::format("{}/{}", options.endpoint, options.repo);
  if (head.status == 404 && head.error_code == "RevisionNotFound") {
    return {ErrorCode::failed, fmt::format("{}: has no revision \"{}\"", repo, options.revision),
            "check --revision"};
  }
  if (head.status == 404) {
    return {ErrorCode::failed, fmt::format("{}: not found (HTTP 404 for {})", repo, url),
            "check the id and the revision"};
  }
  if (head.status == 401 || head.status == 403) {
    const char* what = head.error_code == "GatedRepo" ? "is gated" : "does not exist, is private or is gated";
    const char* remedy =
        options.token.empty()
            ? "check the id; if it is right, accept the terms on its page and pass a token with "
              "--token or HF_TOKEN"
            : "check the id, and that the token may read it and its terms are accepted";
    return {ErrorCode::failed, fmt::format("{}: {} (HTTP {})", repo, what, head.status), remedy};
  }
  return {ErrorCode::failed, fmt::format("{}: HTTP {}", url, head.status), "try again later"};
}

void sleep_before_retry(const PullOptions& options, int attempt) {
  std::this_thread::sleep_for(options.backoff * (std::int64_t{1} << std::min(attempt, 10)));
}

HttpRequest request_for(const PullOptions& options, const std::string& url) {
  return {.url = url,
          .token = options.token,
          .token_origin = options.endpoint,
          .range_begin = 0,
          .stall_limit = options.stall_limit};
}

// The first byte's position in "bytes 5-9/10"; -1 where it is not of that form.
std::int64_t begin_of(const std::string& content_range) {
  if (!content_range.starts_with("bytes ")) return -1;
  std::int64_t begin = 0;
  std::size_t i = 6;
  for (; i < content_range.size() && content_range[i] >= '0' && content_range[i] <= '9'; ++i) {
    if (begin > (INT64_MAX - 9) / 10) return -1;
    begin = begin * 10 + (content_range[i] - '0');
  }
  return i > 6 && i < content_range.size() && content_range[i] == '-' ? begin : -1;
}

std::filesystem::path part_path(const std::filesystem::path& folder, const HubFile& file) {
  return folder / (file.path + ".part");
}

// PATH.part, open for writing at its end.
class Part {
 public:
  Part(std::filesystem::path path, const PullOptions& options, const HubFile& file)
      : path_(std::move(path)), options_(options), file_(file) {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (fd_ >= 0) ::close(fd_);
  }

  Status open() {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) return failed("cannot be written");
    struct stat info {};
    if (::fstat(fd_, &info) != 0) return failed("cannot be examined");
    size_ = S_ISREG(info.st_mode) ? info.st_size : 0;
    if (size_ > file_.size) return truncate();
    return {};
  }

  std::int64_t size() const { return size_; }

  Status truncate() {
    if (size_ > 0 && ::ftruncate(fd_, 0) != 0) return failed("cannot be truncated");
    size_ = 0;
    return {};
  }

  Status append(std::span<const std::byte> bytes) {
    if (static_cast<std::int64_t>(bytes.size()) > file_.size - size_) {
      too_long_ = true;
      return Error{ErrorCode::bad_file,
                   fmt::format("{}: the hub sends more than the {} bytes it lists", file_.path, file_.size),
                   "pull again later, or from another endpoint"};
    }
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), size_);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failed("cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      size_ += written;
    }
    if (options_.progress) options_.progress(file_.path, size_, file_.size);
    return {};
  }

  // All bytes are on the disk after this.
  Status finish() {
    const bool ok = ::fsync(fd_) == 0;
    return ok ? Status() : failed("cannot be written");
  }

  bool too_long() const { return too_long_; }

 private:
  Error failed(const char* what) const {
    const int number = errno;
    return {ErrorCode::failed,
            number == ENOSPC ? fmt::format("{}: the disk is full", path_.string())
                             : fmt::format("{}: {}: {}", path_.string(), what, std::strerror(number)),
            number == ENOSPC ? "free some space and pull again: it goes on where it stopped"
                             : "check permissions, or choose another cache folder"};
  }

  std::filesystem::path path_;
  const PullOptions& options_;
  const HubFile& file_;
  int fd_ = -1;
  std::int64_t size_ = 0;
  bool too_long_ = false;
};

// One request for the bytes that the part lacks. The sink writes only the body of a 200 or 206.
HttpResult fetch_rest(const PullOptions& options, const std::string& url, Part& part) {
  HttpRequest request = request_for(options, url);
  request.range_begin = part.size();
  bool wanted = false;
  const HttpSink sink{
      .begin = [&](const HttpHead& head) -> Status {
        wanted = head.status == 200 || head.status == 206;
        // 200: the server ignores ranges. Another range than asked for is of no use either: start over.
        if (head.status == 200) return part.truncate();
        if (head.status == 206 && begin_of(head.content_range) != part.size()) {
          wanted = false;
          return part.truncate();
        }
        return {};
      },
      .write = [&](std::span<const std::byte> bytes) -> Status {
        return wanted ? part.append(bytes) : Status();
      },
  };
  return http_get(request, sink);
}

// Fills the part up to the file's size.
Status fill(const PullOptions& options, const std::string& url, const HubFile& file, Part& part) {
  std::int64_t furthest = part.size();
  int attempt = 0;
  for (;;) {
    if (part.size() == file.size && (file.size > 0 || attempt > 0)) return {};
    const HttpResult result = fetch_rest(options, url, part);
    if (part.size() == file.size && result.kind == HttpResult::Kind::complete && result.head.status < 300)
      return {};
    if (result.kind == HttpResult::Kind::refused) return result.error;
    Error error = result.error;
    if (result.kind == HttpResult::Kind::complete) {
      error = error_of(options, url, result.head);
      if (result.head.status == 416) {
        SNUG_TRY(part.truncate());  // the part is of another version of the file
      } else if (result.head.status < 300) {
        error = {ErrorCode::failed,
                 fmt::format("{}: the hub sent {} of {} bytes", file.path, part.size(), file.size),
                 "try again later"};
      } else if (!worth_another_try(result.head.status)) {
        return error;
      }
    }
    if (part.size() > furthest) {
      furthest = part.size();
      attempt = 0;
    }
    if (attempt >= options.max_retries) {
      error.message += fmt::format(" (gave up after {} retries)", options.max_retries);
      return error;
    }
    sleep_before_retry(options, attempt++);
  }
}

}  // namespace

Result<TextAnswer> get_text(const PullOptions& options, const std::string& url) {
  for (int attempt = 0;; ++attempt) {
    TextAnswer answer;
    const HttpSink sink{
        .begin = [](const HttpHead&) { return Status(); },
        .write = [&](std::span<const std::byte> bytes) -> Status {
          if (answer.body.size() + bytes.size() > kMaxTextBytes) {
            return Error{ErrorCode::failed, fmt::format("{}: the answer is larger than 64 MiB", url),
                         "check that the endpoint is a model hub"};
          }
          answer.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return {};
        },
    };
    const HttpResult result = http_get(request_for(options, url), sink);
    if (result.kind == HttpResult::Kind::refused) return result.error;
    const bool complete = result.kind == HttpResult::Kind::complete;
    if (complete && result.head.status == 200) {
      answer.link = result.head.link;
      return answer;
    }
    Error error = complete ? error_of(options, url, result.head) : result.error;
    if (complete && !worth_another_try(result.head.status)) return error;
    if (attempt >= options.max_retries) {
      error.message += fmt::format(" (gave up after {} retries)", options.max_retries);
      return error;
    }
    sleep_before_retry(options, attempt);
  }
}

std::int64_t part_bytes(const std::filesystem::path& folder, const HubFile& file) {
  std::error_code code;
  const auto size = std::filesystem::file_size(part_path(folder, file), code);
  return code ? 0 : std::min(static_cast<std::int64_t>(size), file.size);
}

Status download(const PullOptions& options, const std::filesystem::path& folder, const HubFile& file) {
  const auto target = folder / file.path;
  const auto path = part_path(folder, file);
  const std::string url = fmt::format("{}/{}/resolve/{}/{}", options.endpoint, options.repo,
                                      url_encode(options.revision, false), url_encode(file.path, true));
  std::error_code code;
  std::filesystem::create_directories(target.parent_path(), code);
  if (code) {
    return Error{ErrorCode::failed,
                 fmt::format("{}: cannot be created: {}", target.parent_path().string(), code.message()),
                 "check permissions, or choose another cache folder"};
  }

  // A part that an earlier pull left may be of another version of the file: then, once, all over again.
  bool had_part = part_bytes(folder, file) > 0;
  for (;;) {
    Part part(path, options, file);
    SNUG_TRY(part.open());
    const Status filled = fill(options, url, file, part);
    std::string hash;
    if (filled.ok()) {
      SNUG_TRY(part.finish());
      SNUG_ASSIGN(hash, hash_of(path, file));
      if (hash == file.hash) break;
    } else if (!part.too_long()) {
      return filled;
    }
    std::filesystem::remove(path, code);
    if (had_part) {
      had_part = false;
      continue;
    }
    if (!filled.ok()) return filled;
    return Error{
        ErrorCode::bad_file,
        fmt::format("{}: the content does not have the checksum that the hub lists ({} instead of {})",
                    file.path, hash, file.hash),
        "pull again: the bad file was deleted"};
  }
  std::filesystem::rename(path, target, code);
  if (code) {
    return Error{ErrorCode::failed, fmt::format("{}: cannot be renamed: {}", path.string(), code.message()),
                 "check permissions, or choose another cache folder"};
  }
  return {};
}

}  // namespace snug::cli
