// Text to token ids and back.
#include <algorithm>

#include "server/answering.h"
#include "server/fields.h"
#include "server/json_text.h"
#include "server/service.h"

namespace snug::server {
namespace {

HttpReply tokenize(const Service& service, const HttpRequest& request) {
  const auto body = parse_body(request);
  if (!body) return api_error(body.error()).to_reply();
  Fields fields(*body);
  const llm::Skeleton& skeleton = service.skeleton();
  fields.any("model");
  auto prompt = fields.string("prompt");
  const OrderedJson& messages = fields.any("messages");
  const bool generation = fields.boolean("add_generation_prompt").value_or(true);
  if (prompt.has_value() == !messages.is_null()) fields.fail("prompt", "or messages must be given, not both");
  if (!fields.ok()) return fields.error().to_reply();
  if (!prompt) {
    auto text = skeleton.render_chat(messages, OrderedJson(), generation);
    if (!text) return ApiError{400, text.error().to_string(), "messages", ""}.to_reply();
    prompt = *text;
  }
  const auto ids = skeleton.encode(*prompt);
  if (!ids) return api_error(ids.error()).to_reply();
  return {.body = to_text(OrderedJson{
              {"tokens", *ids}, {"count", ids->size()}, {"max_model_len", service.llm.max_model_len()}})};
}

HttpReply detokenize(const Service& service, const HttpRequest& request) {
  const auto body = parse_body(request);
  if (!body) return api_error(body.error()).to_reply();
  Fields fields(*body);
  fields.any("model");
  const OrderedJson& tokens = fields.any("tokens");
  const auto is_id = [](const OrderedJson& id) {
    return id.is_number_integer() && id.get<std::int64_t>() >= 0 &&
           id.get<std::int64_t>() <= text::kMaxTokenId;
  };
  if (!tokens.is_array() || !std::ranges::all_of(tokens, is_id))
    fields.fail("tokens", "must be a list of token ids");
  if (!fields.ok()) return fields.error().to_reply();
  const auto& tokenizer = service.skeleton().tokenizer;
  if (!tokenizer) return ApiError{400, "this model has no tokenizer", "", ""}.to_reply();
  return {.body = to_text(
              OrderedJson{{"prompt", tokenizer->decode(tokens.get<std::vector<std::int32_t>>(), false)}})};
}

}  // namespace

std::vector<Route> token_routes(const Service& service) {
  return {
      {"POST", "/tokenize", [&](const Call& call) { call.reply(tokenize(service, call.request())); }},
      {"POST", "/detokenize", [&](const Call& call) { call.reply(detokenize(service, call.request())); }},
  };
}

}  // namespace snug::server
