#include "server/router.h"

#include <fmt/format.h>

#include <utility>

namespace snug::server {
namespace {

// In a time that does not depend on where they differ.
bool equal(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return different == 0;
}

bool covers(const Route& route, const std::string& path) {
  if (!route.path.ends_with("/*")) return route.path == path;
  const std::string above = route.path.substr(0, route.path.size() - 1);
  return path.size() > above.size() && path.starts_with(above);
}

}  // namespace

std::optional<int> Router::client_of(const HttpRequest& request) const {
  if (api_keys_.empty()) return 0;
  std::string key = request.header("authorization");
  key = key.starts_with("Bearer ") ? key.substr(7) : request.header("x-api-key");
  std::optional<int> client;
  for (std::size_t i = 0; i < api_keys_.size(); ++i) {
    if (equal(api_keys_[i], key)) client = static_cast<int>(i);
  }
  return client;
}

void Router::handle(const std::shared_ptr<Exchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  if (request.method == "OPTIONS") {
    return exchange->reply(
        {.status = 204,
         .headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                     {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key"}}});
  }
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  const Route* other = nullptr;  // of the same path, by another method
  for (const Route& route : routes_) {
    if (!covers(route, request.path)) continue;
    if (route.method != method) {
      other = &route;
      continue;
    }
    const auto client = client_of(request);
    if (route.access == Access::with_key && !client) {
      return exchange->reply(
          route.fault({401, "a valid API key is needed: Authorization: Bearer KEY", "", "invalid_api_key"}));
    }
    return route.handler({exchange, client.value_or(0)});
  }
  if (other == nullptr) {
    return exchange->reply(ApiError{404, request.path + " is not a path of this server", "", ""}.to_reply());
  }
  HttpReply answer = other->fault({405, fmt::format("{} takes {}", request.path, other->method), "", ""});
  answer.headers.emplace_back("Allow", other->method);
  exchange->reply(std::move(answer));
}

}  // namespace snug::server
