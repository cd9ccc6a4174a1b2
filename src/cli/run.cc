// snug run MODEL -p TEXT: one completion.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/bytes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/process.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/terminal.h"

namespace snug::cli {
namespace {

constexpr std::size_t kMaxMessagesBytes = 64 << 20;

struct RunFlags {
  OutputFlags output;
  ModelFlags model;
  SamplingFlags sampling;
  std::optional<std::string> prompt, messages, token_ids;
  std::vector<std::string> images;
  bool chat = false;
};

Result<std::vector<std::int32_t>> prompt_ids(const RunFlags& flags, const llm::Skeleton& skeleton) {
  const int sources = flags.prompt.has_value() + flags.messages.has_value() + flags.token_ids.has_value();
  if (sources > 1) {
    return Error{ErrorCode::usage, "more than one of --prompt, --messages and --token-ids is given",
                 "give one of them"};
  }
  if (flags.token_ids) return parse_token_ids(*flags.token_ids);
  if (flags.messages) {
    SNUG_ASSIGN(const std::string text, read_text_file(*flags.messages, kMaxMessagesBytes));
    SNUG_ASSIGN(const OrderedJson json, parse_ordered_json(text, *flags.messages));
    const bool wrapped = json.is_object();
    const OrderedJson messages = wrapped ? json.value("messages", OrderedJson()) : json;
    const OrderedJson tools = wrapped ? json.value("tools", OrderedJson()) : OrderedJson();
    SNUG_ASSIGN(const std::string rendered, skeleton.render_chat(messages, tools, true));
    return skeleton.encode(rendered);
  }
  std::string text;
  if (flags.prompt) {
    text = *flags.prompt;
  } else if (::isatty(STDIN_FILENO) == 0) {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    return Error{ErrorCode::usage, "there is no prompt",
                 "give -p TEXT, --messages FILE or --token-ids, or pipe text in"};
  }
  if (!flags.chat) return skeleton.encode(text);
  const OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", text}}});
  SNUG_ASSIGN(const std::string rendered, skeleton.render_chat(messages, OrderedJson(), true));
  return skeleton.encode(rendered);
}

Json logprobs_json(const llm::Completion& completion, const llm::Skeleton& skeleton) {
  Json content = Json::array();
  const auto entry = [&](std::int32_t id, float logprob) {
    const std::string token(skeleton.tokenizer ? skeleton.tokenizer->token_bytes(id) : "");
    return Json{{"id", id}, {"token", token}, {"logprob", std::max(logprob, -9999.0f)}};
  };
  for (const auto& sampled : completion.logprobs) {
    Json item = entry(sampled.token, sampled.logprob);
    item["top_logprobs"] = Json::array();
    for (const auto& t : sampled.top) item["top_logprobs"].push_back(entry(t.token, t.logprob));
    content.push_back(std::move(item));
  }
  return {{"content", content}};
}

Json completion_json(const llm::Completion& completion, const llm::Skeleton& skeleton, bool logprobs) {
  return {{"token_ids", completion.token_ids},
          {"text", completion.text},
          {"finish_reason", engine::name_of(completion.finish_reason)},
          {"logprobs", logprobs ? logprobs_json(completion, skeleton) : Json()}};
}

double rate(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

Json sampling_json(const engine::SamplingParams& p) {
  return {{"max_tokens", p.max_tokens},
          {"temperature", p.temperature},
          {"top_p", p.top_p},
          {"top_k", p.top_k},
          {"min_p", p.min_p},
          {"repetition_penalty", p.repetition_penalty},
          {"presence_penalty", p.presence_penalty},
          {"frequency_penalty", p.frequency_penalty},
          {"seed", p.seed ? Json(*p.seed) : Json()}};
}

Status run(const RunFlags& flags) {
  if (!flags.images.empty()) {
    return Error{ErrorCode::usage,
                 fmt::format("--image {}: this model does not read pictures", flags.images[0]),
                 "leave --image out"};
  }
  SNUG_ASSIGN(llm::Skeleton skeleton, flags.model.open(flags.output));
  SNUG_ASSIGN(const auto params, flags.sampling.apply(skeleton.default_sampling()));
  SNUG_TRY(engine::validate(params, skeleton.usable_vocab()));
  SNUG_ASSIGN(const auto ids, prompt_ids(flags, skeleton));
  SNUG_TRY(check_token_ids(ids, skeleton.config.vocab));
  SNUG_ASSIGN(auto options, flags.model.load_options(skeleton));
  // The context is what this request needs, unless the user says otherwise.
  const auto length = static_cast<std::int64_t>(ids.size());
  if (length == 0) return Error{ErrorCode::usage, "the prompt is empty", "give at least one token"};
  if (length >= skeleton.config.max_positions) {
    return Error{ErrorCode::usage,
                 fmt::format("the prompt has {} tokens, the model knows {} positions", length,
                             skeleton.config.max_positions),
                 "shorten the prompt"};
  }
  if (!options.wishes.max_model_len) {
    options.wishes.max_model_len = std::min(length + params.max_tokens, skeleton.config.max_positions);
  } else if (length >= *options.wishes.max_model_len) {
    return Error{ErrorCode::usage,
                 fmt::format("the prompt has {} tokens, --max-model-len allows {} with the answer", length,
                             *options.wishes.max_model_len),
                 fmt::format("shorten the prompt, or give --max-model-len {}", length + params.max_tokens)};
  }
  options.wishes.max_num_seqs = std::max<std::int64_t>(options.wishes.max_num_seqs, params.n);
  ProgressBar bar("Loading", !flags.output.quiet);
  options.progress = [&](std::int64_t done, std::int64_t total) { bar.update(done, total); };
  SNUG_ASSIGN(const auto llm, llm::LLM::load(std::move(skeleton), options));
  bar.clear();

  const bool stream = !flags.output.json && params.n == 1;
  SNUG_ASSIGN(const auto result, llm->generate({ids, params}, [&](int, std::string_view text) {
    if (stream) std::cout << text << std::flush;
    return true;
  }));

  const double prefill_rate = rate(static_cast<double>(result.prompt_tokens * params.n), result.prefill_s);
  const double decode_rate = rate(static_cast<double>(result.completion_tokens - params.n), result.decode_s);
  const Json memory = memory_report(*llm);
  if (flags.output.json) {
    Json out = completion_json(result.completions[0], llm->skeleton(), params.logprobs.has_value());
    out["usage"] = {{"prompt_tokens", result.prompt_tokens},
                    {"completion_tokens", result.completion_tokens},
                    {"total_tokens", result.prompt_tokens + result.completion_tokens}};
    out["timings"] = {{"load_s", llm->load_seconds()},
                      {"prefill_s", result.prefill_s},
                      {"decode_s", result.decode_s},
                      {"prefill_tok_s", prefill_rate},
                      {"decode_tok_s", decode_rate}};
    out["memory"] = memory;
    out["dtype"] = {{"arithmetic", flags.model.arithmetic()}, {"kv_cache", name_of(llm->plan().kv_dtype)}};
    out["sampling"] = sampling_json(params);
    if (params.n > 1) {
      out["choices"] = Json::array();
      for (const auto& c : result.completions) {
        out["choices"].push_back(completion_json(c, llm->skeleton(), params.logprobs.has_value()));
      }
    }
    std::cout << json_line(out) << std::endl;
    return {};
  }
  for (int i = 0; !stream && i < params.n; ++i) {
    std::cout << fmt::format("[{}] {}\n", i, result.completions[static_cast<std::size_t>(i)].text);
  }
  if (stream && !llm->skeleton().tokenizer) {
    for (const auto id : result.completions[0].token_ids) std::cout << id << ' ';
  }
  std::cout << std::endl;
  if (!flags.output.quiet) {
    print_note(fmt::format(
        "prompt {} tokens at {:.1f} tok/s, answer {} tokens at {:.1f} tok/s, memory {} of {} predicted",
        result.prompt_tokens, prefill_rate, result.completion_tokens, decode_rate,
        format_bytes(memory["peak"]["host"]), format_bytes(memory["predicted"]["host"])));
  }
  return {};
}

}  // namespace

Command run_command() {
  return {
      "run", "One completion of a prompt", [](CLI::App& app) -> Runner {
        auto flags = std::make_shared<RunFlags>();
        flags->model.add(app);
        app.add_option("-p,--prompt", flags->prompt, "the prompt; without it, standard input");
        app.add_flag("--chat", flags->chat, "render the prompt as a user message with the chat template");
        app.add_option("--messages", flags->messages, "JSON file: messages, or {messages, tools}")
            ->type_name("FILE");
        app.add_option("--token-ids", flags->token_ids, "the prompt as ids, as 5,6,7");
        app.add_option("--image", flags->images, "a picture for Qwen2.5-VL; repeatable")->type_name("FILE");
        flags->sampling.add(app);
        flags->output.add(app);
        return [flags] { return run(*flags); };
      }};
}

}  // namespace snug::cli
