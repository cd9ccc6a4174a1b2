#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <utility>

#include "server/completion_reply.h"
#include "server/fields.h"
#include "server/json_text.h"

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

Result<OrderedJson> parse_body(const HttpRequest& request) {
  return parse_ordered_json(request.body, "the body", ErrorCode::usage);
}

// What a caller misspelt is said, not dropped without a word.
Headers ignored_fields(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string all;
  for (const std::string& name : names) {
    std::string clean = name.substr(0, 64);
    std::ranges::replace_if(
        clean, [](unsigned char c) { return c < 0x21 || c > 0x7e || c == ','; }, '?');
    all += (all.empty() ? "" : ", ") + clean;
    if (all.size() > 512) break;
  }
  return {{"X-Ignored-Fields", all}};
}

}  // namespace

Service::Service(llm::AsyncLLM& llm, ServiceOptions options)
    : llm_(llm), options_(std::move(options)), created_(std::time(nullptr)) {}

bool Service::knows_key(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  std::string key = request.header("authorization");
  key = key.starts_with("Bearer ") ? key.substr(7) : request.header("x-api-key");
  bool known = false;
  for (const std::string& candidate : options_.api_keys) known |= equal(candidate, key);
  return known;
}

void Service::handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const std::string& path = request.path;
  const auto reply = [&](HttpReply answer) { exchange->reply(std::move(answer)); };
  if (request.method == "OPTIONS") {
    return reply({.status = 204,
                  .headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                              {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key"}}});
  }
  const bool posts = path == "/v1/chat/completions" || path == "/v1/completions" || path == "/tokenize" ||
                     path == "/detokenize";
  const bool gets = path == "/health" || path == "/v1/models" || path.starts_with("/v1/models/");
  if (!posts && !gets) return reply(ApiError{404, path + " is not a path of this server", "", ""}.to_reply());
  const std::string& method = request.method;
  if (posts ? method != "POST" : method != "GET" && method != "HEAD") {
    HttpReply answer =
        ApiError{405, fmt::format("{} takes {}", path, posts ? "POST" : "GET"), "", ""}.to_reply();
    answer.headers.emplace_back("Allow", posts ? "POST" : "GET");
    return reply(std::move(answer));
  }
  if (path == "/health") return reply(health());
  if (!knows_key(request)) {
    return reply(ApiError{401, "a valid API key is needed: Authorization: Bearer KEY", "", "invalid_api_key"}
                     .to_reply());
  }
  if (gets) return reply(models(path));
  if (path == "/tokenize") return reply(tokenize(request));
  if (path == "/detokenize") return reply(detokenize(request));
  complete(exchange, path == "/v1/chat/completions");
}

void Service::complete(const std::shared_ptr<Exchange>& exchange, bool chat) {
  const auto refuse = [&](const ApiError& error) { exchange->reply(error.to_reply()); };
  const auto body = parse_body(exchange->request());
  if (!body) return refuse(api_error(body.error()));
  const llm::Skeleton& skeleton = llm_.llm().skeleton();
  const ModelLimits limits{llm_.max_model_len(), options_.max_n};
  auto parsed =
      chat ? parse_chat_request(*body, skeleton, limits) : parse_text_request(*body, skeleton, limits);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return refuse(*error);
  CompletionRequest request = std::get<CompletionRequest>(std::move(parsed));
  if (!request.model.empty() && std::ranges::find(options_.names, request.model) == options_.names.end()) {
    return refuse(
        {404,
         fmt::format("The model `{}` does not exist; this server has `{}`", request.model, options_.names[0]),
         "model", "model_not_found"});
  }
  const Headers headers = ignored_fields(request.unknown);
  const auto reply = std::make_shared<CompletionReply>(
      request, skeleton, exchange->request().id, request.model.empty() ? options_.names[0] : request.model);
  const bool streams = request.stream;
  // The head of a stream waits for the first token: until then a fault can still have its own status.
  const auto begun = std::make_shared<bool>(false);
  const auto ticket = llm_.submit(
      std::move(request.generate), [exchange, reply, streams, begun, headers](llm::Update update) {
        // JSON is made on the connection's thread: the model's has the next step to run.
        exchange->post([exchange, reply, streams, begun, headers, update = std::move(update)] {
          if (update.error && !*begun) return exchange->reply(api_error(*update.error).to_reply());
          if (!streams) {
            reply->add(update);
            if (update.usage) exchange->reply({.body = reply->whole(), .headers = headers});
            return;
          }
          if (!*begun) {
            *begun = true;
            exchange->begin_stream("text/event-stream", headers);
            exchange->send(reply->first_events());
          }
          exchange->send(reply->events(update));
          if (update.usage) exchange->end_stream();
        });
      });
  if (!ticket) {
    const bool full = llm_.accepts();
    return refuse({full ? 429 : 503,
                   full ? "the queue is full: try again later" : "the server is shutting down", "",
                   full ? "queue_full" : "shutting_down"});
  }
  exchange->on_close([this, ticket = *ticket] { llm_.cancel(ticket); });
}

HttpReply Service::health() const {
  const llm::AsyncStats stats = llm_.stats();
  const bool stalled = stats.seconds_since_progress > options_.stalled_after_s;
  const bool ready = llm_.accepts() && !stalled;
  OrderedJson json = {{"status", stalled ? "stalled"
                                 : ready ? "ok"
                                         : "draining"},
                      {"live", !stalled},
                      {"ready", ready},
                      {"requests", stats.requests},
                      {"running", stats.running},
                      {"waiting", stats.waiting},
                      {"seconds_since_progress", stats.seconds_since_progress}};
  if (options_.memory_report) json["memory"] = options_.memory_report();
  return {.status = ready ? 200 : 503, .body = to_text(json)};
}

HttpReply Service::models(const std::string& path) const {
  const auto card = [&](const std::string& name) {
    return OrderedJson{{"id", name},
                       {"object", "model"},
                       {"created", created_},
                       {"owned_by", "snug"},
                       {"max_model_len", llm_.max_model_len()}};
  };
  if (path != "/v1/models") {
    const std::string name = path.substr(std::string("/v1/models/").size());
    if (std::ranges::find(options_.names, name) != options_.names.end()) return {.body = to_text(card(name))};
    return ApiError{404, fmt::format("The model `{}` does not exist", name), "model", "model_not_found"}
        .to_reply();
  }
  OrderedJson data = OrderedJson::array();
  for (const std::string& name : options_.names) data.push_back(card(name));
  return {.body = to_text(OrderedJson{{"object", "list"}, {"data", data}})};
}

HttpReply Service::tokenize(const HttpRequest& request) const {
  const auto body = parse_body(request);
  if (!body) return api_error(body.error()).to_reply();
  Fields fields(*body);
  const llm::Skeleton& skeleton = llm_.llm().skeleton();
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
              {"tokens", *ids}, {"count", ids->size()}, {"max_model_len", llm_.max_model_len()}})};
}

HttpReply Service::detokenize(const HttpRequest& request) const {
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
  const auto& tokenizer = llm_.llm().skeleton().tokenizer;
  if (!tokenizer) return ApiError{400, "this model has no tokenizer", "", ""}.to_reply();
  return {.body = to_text(
              OrderedJson{{"prompt", tokenizer->decode(tokens.get<std::vector<std::int32_t>>(), false)}})};
}

}  // namespace snug::server
