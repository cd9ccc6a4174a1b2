#include "server/api_error.h"

#include "base/json.h"
#include "server/json_text.h"

namespace snug::server {

std::string ApiError::type() const {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string ApiError::to_json() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return to_text(
      Json{{"error",
            {{"message", message}, {"type", type()}, {"param", or_null(param)}, {"code", or_null(code)}}}});
}

HttpReply ApiError::to_reply() const {
  HttpReply reply{.status = status, .body = to_json()};
  if (status == 429 || status == 503) reply.headers.emplace_back("Retry-After", "1");
  if (status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

ApiError api_error(const Error& error) {
  const bool callers = error.code == ErrorCode::usage || error.code == ErrorCode::does_not_fit;
  return {.status = callers ? 400 : 500, .message = error.to_string()};
}

}  // namespace snug::server
