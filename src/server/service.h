// What the routes share, and the list of them.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "llm/async_llm.h"
#include "server/completion_request.h"
#include "server/route.h"

namespace snug::server {

struct ServiceOptions {
  std::vector<std::string> names;  // the model's, the first is the one that answers give
  int max_n = 8;
  double stalled_after_s = 60;          // without progress while requests wait: /health says no
  std::function<Json()> memory_report;  // {budget, predicted, peak}
};

// Outlives every exchange; `llm` outlives it. Read from any thread.
struct Service {
  llm::AsyncLLM& llm;
  ServiceOptions options;
  std::int64_t started = std::time(nullptr);  // seconds since 1970

  const llm::Skeleton& skeleton() const { return llm.llm().skeleton(); }
  ModelLimits limits() const { return {llm.max_model_len(), options.max_n}; }
  // The model's name in an answer to a request that calls it `asked` (which may be empty); 404 where this
  // server has no such model.
  std::variant<std::string, ApiError> model_name(const std::string& asked) const;
};

// All routes. Each group has a file of its own; their handlers keep a reference to `service`.
std::vector<Route> all_routes(const Service& service);
std::vector<Route> openai_routes(
    const Service& service);                              // /v1/chat/completions, /v1/completions, /v1/models
std::vector<Route> token_routes(const Service& service);  // /tokenize, /detokenize
std::vector<Route> monitor_routes(const Service& service);  // /health

}  // namespace snug::server
