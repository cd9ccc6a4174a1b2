#include "server/completion_reply.h"

#include <algorithm>
#include <ctime>

#include "server/json_text.h"

namespace snug::server {
namespace {

constexpr float kLowestLogprob = -9999.0f;  // JSON has no infinity

OrderedJson usage_json(const llm::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

}  // namespace

CompletionReply::CompletionReply(const CompletionRequest& request, const llm::Skeleton& skeleton,
                                 std::string id, std::string model)
    : skeleton_(&skeleton),
      chat_(request.chat),
      include_usage_(request.include_usage),
      logprobs_(request.generate.params.logprobs.has_value()),
      id_((request.chat ? "chatcmpl-" : "cmpl-") + id),
      model_(std::move(model)),
      echo_(request.echo),
      created_(std::time(nullptr)),
      answers_(static_cast<std::size_t>(request.generate.params.n)) {
  for (Answer& answer : answers_) answer.text = echo_;
}

OrderedJson CompletionReply::chunk(OrderedJson choices) const {
  OrderedJson chunk = {{"id", id_},
                       {"object", chat_ ? "chat.completion.chunk" : "text_completion"},
                       {"created", created_},
                       {"model", model_},
                       {"choices", std::move(choices)}};
  if (include_usage_) chunk["usage"] = nullptr;
  return chunk;
}

std::string CompletionReply::event(const OrderedJson& chunk) const {
  return "data: " + to_text(chunk) + "\n\n";
}

std::string CompletionReply::first_events() {
  std::string all;
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    if (chat_) {
      all += event(chunk({{{"index", i},
                           {"delta", {{"role", "assistant"}, {"content", ""}}},
                           {"logprobs", nullptr},
                           {"finish_reason", nullptr}}}));
    } else if (!echo_.empty()) {
      all +=
          event(chunk({{{"index", i}, {"text", echo_}, {"logprobs", nullptr}, {"finish_reason", nullptr}}}));
    }
  }
  return all;
}

std::string CompletionReply::events(const llm::Update& update) {
  std::string all;
  for (const llm::Delta& delta : update.deltas) {
    OrderedJson logprobs;
    if (delta.logprobs) logprobs = logprobs_json({*delta.logprobs});
    if (!delta.text.empty() || delta.logprobs) {
      OrderedJson choice = {{"index", delta.index}};
      if (chat_) {
        choice["delta"] = {{"content", delta.text}};
      } else {
        choice["text"] = delta.text;
      }
      choice["logprobs"] = logprobs;
      choice["finish_reason"] = nullptr;
      all += event(chunk({choice}));
    }
    if (delta.finish_reason) {
      OrderedJson choice = {{"index", delta.index}};
      if (chat_) {
        choice["delta"] = OrderedJson::object();
      } else {
        choice["text"] = "";
      }
      choice["logprobs"] = nullptr;
      choice["finish_reason"] = engine::name_of(*delta.finish_reason);
      all += event(chunk({choice}));
    }
  }
  if (update.error) return all + "data: " + api_error(*update.error).to_json() + "\n\n";
  if (!update.usage) return all;
  if (include_usage_) {
    OrderedJson last = chunk(OrderedJson::array());
    last["usage"] = usage_json(*update.usage);
    all += event(last);
  }
  return all + "data: [DONE]\n\n";
}

void CompletionReply::add(const llm::Update& update) {
  for (const llm::Delta& delta : update.deltas) {
    Answer& answer = answers_[static_cast<std::size_t>(delta.index)];
    answer.text += delta.text;
    if (delta.logprobs) answer.logprobs.push_back(*delta.logprobs);
    if (delta.finish_reason) answer.finish_reason = engine::name_of(*delta.finish_reason);
  }
  if (update.usage) usage_ = *update.usage;
}

std::string CompletionReply::whole() {
  OrderedJson choices = OrderedJson::array();
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    const Answer& answer = answers_[i];
    OrderedJson choice = {{"index", i}};
    if (chat_) {
      choice["message"] = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
    } else {
      choice["text"] = answer.text;
    }
    choice["logprobs"] = logprobs_ ? logprobs_json(answer.logprobs) : OrderedJson();
    choice["finish_reason"] = answer.finish_reason;
    choices.push_back(std::move(choice));
  }
  return to_text(OrderedJson{{"id", id_},
                             {"object", chat_ ? "chat.completion" : "text_completion"},
                             {"created", created_},
                             {"model", model_},
                             {"choices", choices},
                             {"usage", usage_json(usage_)}});
}

OrderedJson CompletionReply::token_json(std::int32_t token, float logprob) const {
  const std::string text(skeleton_->tokenizer ? skeleton_->tokenizer->token_bytes(token) : "");
  OrderedJson bytes = OrderedJson::array();
  for (const unsigned char byte : text) bytes.push_back(byte);
  return {{"token", text}, {"logprob", std::max(logprob, kLowestLogprob)}, {"bytes", bytes}};
}

OrderedJson CompletionReply::logprobs_json(const std::vector<engine::Sampled>& tokens) const {
  if (chat_) {
    OrderedJson content = OrderedJson::array();
    for (const engine::Sampled& sampled : tokens) {
      OrderedJson entry = token_json(sampled.token, sampled.logprob);
      entry["top_logprobs"] = OrderedJson::array();
      for (const auto& top : sampled.top) entry["top_logprobs"].push_back(token_json(top.token, top.logprob));
      content.push_back(std::move(entry));
    }
    return {{"content", content}, {"refusal", nullptr}};
  }
  OrderedJson texts = OrderedJson::array(), logprobs = OrderedJson::array(), tops = OrderedJson::array(),
              offsets = OrderedJson::array();
  std::size_t offset = 0;
  for (const engine::Sampled& sampled : tokens) {
    const OrderedJson entry = token_json(sampled.token, sampled.logprob);
    OrderedJson top = OrderedJson::object();
    for (const auto& other : sampled.top) {
      const OrderedJson json = token_json(other.token, other.logprob);
      top[json["token"].get<std::string>()] = json["logprob"];
    }
    offsets.push_back(offset);
    offset += entry["token"].get_ref<const std::string&>().size();
    texts.push_back(entry["token"]), logprobs.push_back(entry["logprob"]), tops.push_back(std::move(top));
  }
  return {{"tokens", texts}, {"token_logprobs", logprobs}, {"top_logprobs", tops}, {"text_offset", offsets}};
}

}  // namespace snug::server
