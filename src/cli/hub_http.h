// One HTTP GET over libcurl: streamed body, byte ranges, redirects followed by hand.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace snug::cli {

struct HttpRequest {
  std::string url;
  std::string token;             // bearer token; may be empty
  std::string token_origin;      // any URL of the only origin (scheme, host, port) that is sent the token
  std::int64_t range_begin = 0;  // > 0 asks for the bytes from here to the end
  std::chrono::seconds stall_limit{60};  // gives up when not a byte came for this long
};

// The status line and the headers that matter here, of the last response (redirects are followed first).
struct HttpHead {
  long status = 0;
  std::string content_range;  // "bytes 5-9/10"
  std::string link;
  std::string error_code;  // the hub's x-error-code: GatedRepo, RepoNotFound, RevisionNotFound, EntryNotFound
};

// Called as the response comes in; an error from either ends the transfer and is handed back.
struct HttpSink {
  std::function<Status(const HttpHead&)> begin;  // once, before the first byte of the body
  std::function<Status(std::span<const std::byte>)> write;
};

struct HttpResult {
  enum class Kind {
    complete,  // the response came whole; its status may still be 404 or 503
    dropped,   // no connection, or it broke: worth another try
    refused,   // the sink's error, or one that another try will not cure
  };
  Kind kind = Kind::complete;
  HttpHead head;
  Error error;  // for dropped and refused
};

// Never throws. Follows up to 10 redirects, none from https to http.
HttpResult http_get(const HttpRequest& request, const HttpSink& sink);

// Whether both URLs have the same scheme, host and port; false where one cannot be parsed.
bool same_origin(const std::string& a, const std::string& b);

// Percent-encodes everything but letters, digits and "-._~" (and '/' where keep_slash).
std::string url_encode(std::string_view text, bool keep_slash);

// `reference` (absolute, or relative to `base`) as an absolute URL; empty where it cannot be parsed.
std::string resolve_url(const std::string& base, const std::string& reference);

}  // namespace snug::cli
