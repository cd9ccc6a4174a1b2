// The routes: which path does what.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "llm/async_llm.h"
#include "server/completion_request.h"
#include "server/http.h"

namespace snug::server {

struct ServiceOptions {
  std::vector<std::string> names;     // the model's, the first is the one that answers give
  std::vector<std::string> api_keys;  // empty: none is asked for
  int max_n = 8;
  double stalled_after_s = 60;          // without progress while requests wait: /health says no
  std::function<Json()> memory_report;  // {budget, predicted, peak}
};

class Service {
 public:
  // `llm` must outlive it.
  Service(llm::AsyncLLM& llm, ServiceOptions options);
  void handle(const std::shared_ptr<Exchange>& exchange);

 private:
  void complete(const std::shared_ptr<Exchange>& exchange, bool chat);
  HttpReply health() const;
  HttpReply models(const std::string& path) const;
  HttpReply tokenize(const HttpRequest& request) const;
  HttpReply detokenize(const HttpRequest& request) const;
  bool knows_key(const HttpRequest& request) const;

  llm::AsyncLLM& llm_;
  ServiceOptions options_;
  std::int64_t created_;
};

}  // namespace snug::server
