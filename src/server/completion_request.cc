#include "server/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "server/fields.h"

namespace snug::server {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxStops = 16;

void read_logit_bias(Fields& fields, std::map<std::int32_t, float>& bias) {
  const OrderedJson& given = fields.any("logit_bias");
  if (given.is_null()) return;
  if (!given.is_object()) return fields.fail("logit_bias", "must be an object from token ids to numbers");
  for (const auto& [key, value] : given.items()) {
    std::int32_t id = 0;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (code != std::errc() || end != key.data() + key.size() || !value.is_number()) {
      return fields.fail("logit_bias", "must be an object from token ids to numbers");
    }
    bias[id] = value.get<float>();
  }
}

// What both kinds share. max_tokens is left at -1 where there is none.
CompletionRequest read_common(Fields& fields, bool chat, const llm::Skeleton& skeleton,
                              const ModelLimits& limits) {
  CompletionRequest request{.chat = chat};
  engine::SamplingParams& p = request.generate.params;
  p = skeleton.default_sampling();
  request.model = fields.string("model").value_or("");
  p.temperature = fields.number("temperature").value_or(p.temperature);
  p.top_p = fields.number("top_p").value_or(p.top_p);
  p.top_k = static_cast<int>(fields.integer("top_k", -1, kMaxInt).value_or(p.top_k));
  p.min_p = fields.number("min_p").value_or(p.min_p);
  p.repetition_penalty = fields.number("repetition_penalty").value_or(p.repetition_penalty);
  p.presence_penalty = fields.number("presence_penalty").value_or(p.presence_penalty);
  p.frequency_penalty = fields.number("frequency_penalty").value_or(p.frequency_penalty);
  p.n = static_cast<int>(fields.integer("n", 1, limits.max_n).value_or(1));
  p.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  if (const auto seed = fields.integer("seed", std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max())) {
    p.seed = static_cast<std::uint64_t>(*seed);
  }
  p.stop = fields.strings("stop").value_or(std::vector<std::string>());
  std::erase(p.stop, "");
  if (p.stop.size() > kMaxStops) fields.fail("stop", fmt::format("must be at most {} strings", kMaxStops));
  read_logit_bias(fields, p.logit_bias);
  p.max_tokens = static_cast<int>(fields.integer("max_tokens", 1, kMaxInt).value_or(-1));
  request.stream = fields.boolean("stream").value_or(false);
  const OrderedJson& options = fields.any("stream_options");
  if (!options.is_null()) {
    Fields inner(options, "stream_options.");
    request.include_usage = inner.boolean("include_usage").value_or(false);
    inner.boolean("include_obfuscation");
    if (!inner.ok()) fields.fail("stream_options", "must be an object as {\"include_usage\": true}");
    if (!request.stream) fields.fail("stream_options", "is only for stream: true");
  }
  // Known, and without a meaning here.
  for (const char* name :
       {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}) {
    fields.any(name);
  }
  return request;
}

// After the prompt is known: room for the answer, and the values' ranges.
std::variant<CompletionRequest, ApiError> finish(Fields& fields, CompletionRequest request,
                                                 const llm::Skeleton& skeleton, const ModelLimits& limits,
                                                 const char* prompt_field) {
  if (!fields.ok()) return fields.error();
  const auto length = static_cast<std::int64_t>(request.generate.prompt.size());
  if (length == 0) return ApiError{400, fmt::format("{} has no tokens", prompt_field), prompt_field, ""};
  if (length >= limits.max_model_len) {
    return ApiError{
        400,
        fmt::format("This model's maximum context length is {} tokens, and {} has {}: shorten it, or "
                    "start the server with a larger --max-model-len",
                    limits.max_model_len, prompt_field, length),
        prompt_field, "context_length_exceeded"};
  }
  engine::SamplingParams& p = request.generate.params;
  const auto room = static_cast<int>(std::min(limits.max_model_len - length, kMaxInt));
  p.max_tokens = p.max_tokens < 0 ? room : std::min(p.max_tokens, room);
  const int vocab = static_cast<int>(skeleton.config.vocab);
  for (const std::int32_t id : request.generate.prompt) {
    if (id >= 0 && id < vocab) continue;
    return ApiError{400,
                    fmt::format("{}: token id {} is outside the vocabulary of {}", prompt_field, id, vocab),
                    prompt_field, ""};
  }
  const Status valid = engine::validate(p, skeleton.usable_vocab());
  if (!valid) {
    const std::string& message = valid.error().message;
    return ApiError{400, message, message.substr(0, message.find(' ')), ""};
  }
  request.unknown = fields.unknown();
  return request;
}

void read_chat_logprobs(Fields& fields, engine::SamplingParams& params) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, engine::kMaxLogprobs);
  if (top && !wanted) fields.fail("top_logprobs", "needs logprobs: true");
  if (wanted) params.logprobs = static_cast<int>(top.value_or(0));
}

// The later name wins where both are given, as in the OpenAI API.
void read_max_completion_tokens(Fields& fields, engine::SamplingParams& params) {
  const auto given = fields.integer("max_completion_tokens", 1, kMaxInt);
  if (given) params.max_tokens = static_cast<int>(*given);
}

void refuse_unsupported(Fields& fields) {
  const OrderedJson& format = fields.any("response_format");
  if (!format.is_null()) {
    Fields inner(format, "response_format.");
    const std::string type = inner.string("type").value_or("");
    if (type != "text") {
      fields.fail("response_format", "of this type is not supported: \"text\" is, others are not yet");
    }
  }
  const OrderedJson& choice = fields.any("tool_choice");
  if (!choice.is_null() && choice != "auto" && choice != "none") {
    fields.fail("tool_choice", "must be \"auto\" or \"none\": calls cannot be forced yet");
  }
  for (const char* name : {"tools", "functions"}) {
    const OrderedJson& tools = fields.any(name);
    if (!tools.is_null() && !(tools.is_array() && tools.empty())) fields.fail(name, "are not supported yet");
  }
  fields.any("function_call"), fields.any("parallel_tool_calls");
}

}  // namespace

std::variant<CompletionRequest, ApiError> parse_chat_request(const OrderedJson& body,
                                                             const llm::Skeleton& skeleton,
                                                             const ModelLimits& limits) {
  Fields fields(body);
  CompletionRequest request = read_common(fields, true, skeleton, limits);
  read_max_completion_tokens(fields, request.generate.params);
  read_chat_logprobs(fields, request.generate.params);
  refuse_unsupported(fields);
  const OrderedJson& messages = fields.any("messages");
  if (!messages.is_array() || messages.empty())
    fields.fail("messages", "must be a list of at least one message");
  if (!fields.ok()) return fields.error();
  const auto text = skeleton.render_chat(messages, OrderedJson(), true);
  if (!text) return ApiError{400, text.error().to_string(), "messages", ""};
  const auto ids = skeleton.encode(*text);
  if (!ids) return api_error(ids.error());
  request.generate.prompt = *ids;
  return finish(fields, std::move(request), skeleton, limits, "messages");
}

std::variant<CompletionRequest, ApiError> parse_text_request(const OrderedJson& body,
                                                             const llm::Skeleton& skeleton,
                                                             const ModelLimits& limits) {
  Fields fields(body);
  CompletionRequest request = read_common(fields, false, skeleton, limits);
  if (request.generate.params.max_tokens < 0) request.generate.params.max_tokens = 16;  // the API's default
  if (const auto logprobs = fields.integer("logprobs", 0, engine::kMaxLogprobs)) {
    request.generate.params.logprobs = static_cast<int>(*logprobs);
  }
  const auto best_of = fields.integer("best_of", 1, limits.max_n);
  if (best_of && *best_of != request.generate.params.n) fields.fail("best_of", "must equal n");
  if (!fields.any("suffix").is_null()) fields.fail("suffix", "is not supported");
  const bool echo = fields.boolean("echo").value_or(false);
  if (echo && request.generate.params.logprobs) fields.fail("echo", "does not go with logprobs");

  const OrderedJson& prompt = fields.any("prompt");
  const OrderedJson& one =
      prompt.is_array() && prompt.size() == 1 && !prompt[0].is_number() ? prompt[0] : prompt;
  if (one.is_string()) {
    const auto ids = skeleton.encode(one.get<std::string>());
    if (!ids) return api_error(ids.error());
    request.generate.prompt = *ids;
    if (echo) request.echo = one.get<std::string>();
  } else if (one.is_array() && !one.empty() &&
             std::ranges::all_of(one, [](const auto& id) { return id.is_number_integer(); })) {
    for (const auto& id : one) {
      // Out of range stays out of range.
      request.generate.prompt.push_back(
          static_cast<std::int32_t>(std::clamp<std::int64_t>(id.template get<std::int64_t>(), -1, kMaxInt)));
    }
    if (echo && skeleton.tokenizer) request.echo = skeleton.tokenizer->decode(request.generate.prompt, true);
  } else {
    fields.fail("prompt", "must be one string or one list of token ids");
  }
  return finish(fields, std::move(request), skeleton, limits, "prompt");
}

}  // namespace snug::server
