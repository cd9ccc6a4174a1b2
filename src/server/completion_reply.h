// Answers as /v1/chat/completions and /v1/completions word them, whole and in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "llm/async_llm.h"
#include "server/answering.h"
#include "server/completion_request.h"

namespace snug::server {

// Collects one request's updates; used from the connection's thread.
class CompletionReply final : public AnswerWriter {
 public:
  // `id` of the exchange, `model` as the answer names it. The skeleton must outlive it.
  CompletionReply(const CompletionRequest& request, const llm::Skeleton& skeleton, std::string id,
                  std::string model);

  std::string first_events() override;
  std::string events(const llm::Update& update) override;
  void add(const llm::Update& update) override;
  std::string whole() override;

 private:
  OrderedJson chunk(OrderedJson choices) const;
  std::string event(const OrderedJson& chunk) const;
  OrderedJson token_json(std::int32_t token, float logprob) const;
  OrderedJson logprobs_json(const std::vector<engine::Sampled>& tokens) const;

  struct Answer {
    std::string text;
    std::string finish_reason;
    std::vector<engine::Sampled> logprobs;
  };
  const llm::Skeleton* skeleton_;
  bool chat_, include_usage_, logprobs_;
  std::string id_, model_, echo_;
  std::int64_t created_;
  std::vector<Answer> answers_;
  llm::Usage usage_;
};

}  // namespace snug::server
