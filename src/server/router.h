// Finds the route of a request; answers what has none, the wrong method, and a missing API key.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/route.h"

namespace snug::server {

class Router {
 public:
  // `api_keys`: empty where none is asked for.
  Router(std::vector<Route> routes, std::vector<std::string> api_keys)
      : routes_(std::move(routes)), api_keys_(std::move(api_keys)) {}
  void handle(const std::shared_ptr<Exchange>& exchange) const;
  const std::vector<Route>& routes() const { return routes_; }

 private:
  // The position of the request's API key; nothing if it has none that is known.
  std::optional<int> client_of(const HttpRequest& request) const;

  std::vector<Route> routes_;
  std::vector<std::string> api_keys_;
};

}  // namespace snug::server
