// The OpenAI API: completions, and the models there are.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/answering.h"
#include "server/completion_reply.h"
#include "server/completion_request.h"
#include "server/json_text.h"
#include "server/service.h"

namespace snug::server {
namespace {

void complete(const Service& service, const Call& call, bool chat) {
  const auto refuse = [&](const ApiError& error) { call.reply(error.to_reply()); };
  const auto body = parse_body(call.request());
  if (!body) return refuse(api_error(body.error()));
  const llm::Skeleton& skeleton = service.skeleton();
  auto parsed = chat ? parse_chat_request(*body, skeleton, service.limits())
                     : parse_text_request(*body, skeleton, service.limits());
  if (const auto* error = std::get_if<ApiError>(&parsed)) return refuse(*error);
  CompletionRequest request = std::get<CompletionRequest>(std::move(parsed));
  const auto name = service.model_name(request.model);
  if (const auto* error = std::get_if<ApiError>(&name)) return refuse(*error);
  Answering how{.writer = std::make_shared<CompletionReply>(request, skeleton, call.request().id,
                                                            std::get<std::string>(name)),
                .stream = request.stream,
                .headers = ignored_fields(request.unknown)};
  answer(service, call, std::move(request.generate), std::move(how));
}

OrderedJson model_card(const Service& service, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", service.started},
          {"owned_by", "snug"},
          {"max_model_len", service.llm.max_model_len()}};
}

HttpReply list_models(const Service& service) {
  OrderedJson data = OrderedJson::array();
  for (const std::string& name : service.options.names) data.push_back(model_card(service, name));
  return {.body = to_text(OrderedJson{{"object", "list"}, {"data", data}})};
}

HttpReply one_model(const Service& service, const std::string& path) {
  const std::string asked = path.substr(std::string("/v1/models/").size());
  const auto name = service.model_name(asked);
  if (const auto* error = std::get_if<ApiError>(&name)) return error->to_reply();
  return {.body = to_text(model_card(service, asked))};
}

}  // namespace

std::vector<Route> openai_routes(const Service& service) {
  return {
      {"POST", "/v1/chat/completions", [&](const Call& call) { complete(service, call, true); }},
      {"POST", "/v1/completions", [&](const Call& call) { complete(service, call, false); }},
      {"GET", "/v1/models", [&](const Call& call) { call.reply(list_models(service)); }},
      {"GET", "/v1/models/*", [&](const Call& call) { call.reply(one_model(service, call.request().path)); }},
  };
}

}  // namespace snug::server
