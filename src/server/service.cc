#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace snug::server {

std::variant<std::string, ApiError> Service::model_name(const std::string& asked) const {
  if (asked.empty()) return options.names[0];
  if (std::ranges::find(options.names, asked) != options.names.end()) return asked;
  return ApiError{404,
                  fmt::format("The model `{}` does not exist; this server has `{}`", asked, options.names[0]),
                  "model", "model_not_found"};
}

std::vector<Route> all_routes(const Service& service) {
  std::vector<Route> all;
  for (auto* group : {openai_routes, token_routes, monitor_routes})
    std::ranges::move(group(service), std::back_inserter(all));
  return all;
}

}  // namespace snug::server
