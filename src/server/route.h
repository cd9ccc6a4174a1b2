// A path of the server and what answers it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/api_error.h"
#include "server/http.h"

namespace snug::server {

// One request on its way through a route.
struct Call {
  std::shared_ptr<Exchange> exchange;
  int client = 0;  // whose: the position of its API key; 0 where none are asked for

  const HttpRequest& request() const { return exchange->request(); }
  void reply(HttpReply answer) const { exchange->reply(std::move(answer)); }
};

enum class Access : std::uint8_t { with_key, open };

struct Route {
  std::string method;  // "POST", or "GET" that answers HEAD too
  std::string path;    // "/v1/models"; "/v1/models/*" stands for all below it
  std::function<void(const Call&)> handler;
  Access access = Access::with_key;
  HttpReply (*fault)(const ApiError&) = [](const ApiError& error) { return error.to_reply(); };
};

}  // namespace snug::server
