#include "cli/hub_http.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <cctype>
#include <memory>
#include <optional>

namespace snug::cli {
namespace {

constexpr int kMaxRedirects = 10;
constexpr std::size_t kMaxHeaderBytes = 16384;  // of one header that is kept

struct CurlDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
  void operator()(char* text) const { curl_free(text); }
};
template <class T>
using CurlPtr = std::unique_ptr<T, CurlDeleter>;

CurlPtr<CURLU> parse_url(const std::string& text) {
  CurlPtr<CURLU> url(curl_url());
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return nullptr;
  return url;
}

std::optional<std::string> url_part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return std::nullopt;
  const CurlPtr<char> owner(text);
  return std::string(text);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == '\r' || text.back() == '\n' || text.back() == ' '))
    text.remove_suffix(1);
  return text;
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// What curl's callbacks see of one request.
struct Exchange {
  CURL* handle = nullptr;
  const HttpSink* sink = nullptr;
  HttpHead head;
  bool begun = false;
  std::optional<Error> sink_error;
};

std::size_t on_header(char* data, std::size_t, std::size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view line(data, size);
  if (line.starts_with("HTTP/")) exchange.head = {};  // a new response, e.g. after "100 Continue"
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || size > kMaxHeaderBytes) return size;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trim(line.substr(colon + 1));
  if (name == "content-range") exchange.head.content_range = value;
  if (name == "link") exchange.head.link = value;
  if (name == "x-error-code") exchange.head.error_code = value;
  return size;
}

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &exchange.head.status);
  if (is_redirect(exchange.head.status)) return size;  // the text that goes with a redirect is of no use
  Status status;
  if (!exchange.begun) {
    exchange.begun = true;
    status = exchange.sink->begin(exchange.head);
  }
  if (status.ok()) status = exchange.sink->write(std::as_bytes(std::span(data, size)));
  if (status.ok()) return size;
  exchange.sink_error = status.error();
  return CURL_WRITEFUNC_ERROR;
}

bool worth_another_try(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

HttpResult refuse(std::string message, std::string remedy) {
  HttpResult result;
  result.kind = HttpResult::Kind::refused;
  result.error = {ErrorCode::failed, std::move(message), std::move(remedy)};
  return result;
}

// One request and response; `location` becomes the absolute target where the response is a redirect.
HttpResult get_once(CURL* handle, const HttpRequest& request, const std::string& url, const HttpSink& sink,
                    std::string& location) {
  char reason[CURL_ERROR_SIZE] = "";
  Exchange exchange{.handle = handle, .sink = &sink};
  curl_easy_reset(handle);
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, 30L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_limit.count()));
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "snug");
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &on_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &on_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &exchange);

  CurlPtr<curl_slist> headers;
  if (!request.token.empty() && same_origin(url, request.token_origin)) {
    headers.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + request.token).c_str()));
  }
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  const std::string range = fmt::format("{}-", request.range_begin);
  if (request.range_begin > 0) curl_easy_setopt(handle, CURLOPT_RANGE, range.c_str());

  const CURLcode code = curl_easy_perform(handle);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
  HttpResult result;
  result.head = exchange.head;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &result.head.status);
  if (exchange.sink_error) {
    result.kind = HttpResult::Kind::refused;
    result.error = *exchange.sink_error;
    return result;
  }
  if (code != CURLE_OK) {
    result.kind = worth_another_try(code) ? HttpResult::Kind::dropped : HttpResult::Kind::refused;
    result.error = {ErrorCode::failed,
                    fmt::format("{}: {}", url, reason[0] != '\0' ? reason : curl_easy_strerror(code)),
                    "check the network, and the endpoint's address"};
    return result;
  }
  if (is_redirect(result.head.status)) {
    const char* target = nullptr;
    curl_easy_getinfo(handle, CURLINFO_REDIRECT_URL, &target);
    if (target == nullptr) {
      return refuse(fmt::format("{}: a redirect (HTTP {}) without a target", url, result.head.status),
                    "try again later, or another endpoint");
    }
    location = target;
    return result;
  }
  if (!exchange.begun) {  // an empty body
    const Status status = sink.begin(result.head);
    if (!status.ok()) {
      result.kind = HttpResult::Kind::refused;
      result.error = status.error();
    }
  }
  return result;
}

}  // namespace

HttpResult http_get(const HttpRequest& request, const HttpSink& sink) {
  const CurlPtr<CURL> handle(curl_easy_init());
  if (handle == nullptr) return refuse("libcurl could not be started", "check the installation of libcurl");
  std::string url = request.url;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    std::string next;
    HttpResult result = get_once(handle.get(), request, url, sink, next);
    if (next.empty()) return result;
    if (lower(url).starts_with("https:") && !lower(next).starts_with("https:")) {
      return refuse(fmt::format("{}: redirects from https to {}, which is not secure", url, next),
                    "use another endpoint");
    }
    url = next;
  }
  return refuse(fmt::format("{}: more than {} redirects", request.url, kMaxRedirects),
                "use another endpoint");
}

bool same_origin(const std::string& a, const std::string& b) {
  const auto first = parse_url(a), second = parse_url(b);
  if (first == nullptr || second == nullptr) return false;
  for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT}) {
    const unsigned flags = part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0;
    const auto x = url_part(first.get(), part, flags), y = url_part(second.get(), part, flags);
    if (!x || !y || lower(*x) != lower(*y)) return false;
  }
  return true;
}

std::string url_encode(std::string_view text, bool keep_slash) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slash);
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string resolve_url(const std::string& base, const std::string& reference) {
  const auto url = parse_url(base);
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK) return "";
  return url_part(url.get(), CURLUPART_URL).value_or("");
}

}  // namespace snug::cli
