#include "llm/skeleton.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "model/format_mix.h"

namespace snug::llm {
namespace {

constexpr std::string_view kRandom = "random:";
constexpr std::string_view kChatEnd = "<|im_end|>";

void add_eos(Skeleton& skeleton, std::int32_t id) {
  if (id >= 0 && std::ranges::find(skeleton.eos_ids, id) == skeleton.eos_ids.end())
    skeleton.eos_ids.push_back(id);
}

Status take_tokenizer(Skeleton& skeleton, formats::TokenizerFiles files) {
  SNUG_ASSIGN(auto tokenizer, text::Tokenizer::create(std::move(files.spec)));
  skeleton.tokenizer = std::move(tokenizer);
  skeleton.bos_token = files.bos_token;
  skeleton.eos_token = files.eos_token;
  if (!files.chat_template.empty()) {
    SNUG_ASSIGN(auto parsed, text::ChatTemplate::parse(files.chat_template, files.chat_template_name));
    skeleton.chat_template = std::move(parsed);
  }
  return {};
}

void collect_eos(Skeleton& skeleton) {
  if (skeleton.checkpoint) {
    for (const auto id : skeleton.checkpoint->generation.eos_token_ids) add_eos(skeleton, id);
    for (const auto id : skeleton.checkpoint->config.eos_token_ids) add_eos(skeleton, id);
  }
  if (skeleton.tokenizer) {
    add_eos(skeleton, skeleton.tokenizer->eos());
    if (skeleton.chat_template) add_eos(skeleton, skeleton.tokenizer->id_of(kChatEnd));
  }
}

Result<Skeleton> open_random(const std::string& model) {
  const std::string rest = model.substr(kRandom.size());
  const auto colon = rest.find(':');
  Skeleton skeleton;
  skeleton.name = model;
  skeleton.random_type = colon == std::string::npos ? "bf16" : rest.substr(colon + 1);
  SNUG_ASSIGN(skeleton.config, model::config_by_name(rest.substr(0, colon)));
  SNUG_ASSIGN(auto weights, model::weights_of_type(skeleton.config, skeleton.random_type));
  skeleton.weights = model::place_weights(std::move(weights));
  skeleton.tokenizer_error = Error{ErrorCode::usage, model + " has no tokenizer", "give --token-ids"};
  return skeleton;
}

}  // namespace

int Skeleton::usable_vocab() const {
  const auto vocab = static_cast<int>(config.vocab);
  return tokenizer ? std::min(vocab, tokenizer->vocab_size()) : vocab;
}

std::int64_t Skeleton::weight_bytes() const {
  std::int64_t total = 0;
  for (const auto& w : weights) total += w.weight.tensor.bytes;
  return total;
}

engine::SamplingParams Skeleton::default_sampling() const {
  engine::SamplingParams params;
  if (!checkpoint) return params;
  const auto& shipped = checkpoint->generation;
  params.temperature =
      shipped.do_sample.value_or(true) ? shipped.temperature.value_or(params.temperature) : 0.0;
  params.top_p = shipped.top_p.value_or(params.top_p);
  params.top_k = static_cast<int>(shipped.top_k.value_or(params.top_k));
  params.min_p = shipped.min_p.value_or(params.min_p);
  params.repetition_penalty = shipped.repetition_penalty.value_or(params.repetition_penalty);
  return params;
}

Result<std::string> Skeleton::render_chat(const OrderedJson& messages, const OrderedJson& tools,
                                          bool add_generation_prompt) const {
  if (!chat_template) {
    return Error{ErrorCode::usage, fmt::format("{}: there is no chat template", name),
                 "add chat_template.jinja to the folder, or give a plain prompt"};
  }
  OrderedJson variables;
  SNUG_ASSIGN(variables["messages"],
              text::normalize_messages(messages, chat_template->walks_content_parts()));
  if (!tools.is_null()) variables["tools"] = tools;
  variables["add_generation_prompt"] = add_generation_prompt;
  variables["bos_token"] = bos_token;
  variables["eos_token"] = eos_token;
  return chat_template->render(variables);
}

Result<std::vector<std::int32_t>> Skeleton::encode(std::string_view text) const {
  if (!tokenizer) {
    return tokenizer_error.value_or(Error{ErrorCode::usage, fmt::format("{}: there is no tokenizer", name),
                                          "add tokenizer.json to the folder, or give --token-ids"});
  }
  return tokenizer->encode(text);
}

Result<Skeleton> open_skeleton(const std::string& model) {
  if (model.starts_with(kRandom)) return open_random(model);
  Skeleton skeleton;
  skeleton.name = model;
  SNUG_ASSIGN(skeleton.checkpoint, formats::open_checkpoint(model));
  auto& checkpoint = *skeleton.checkpoint;
  SNUG_ASSIGN(skeleton.config, model::config_from(checkpoint));
  SNUG_ASSIGN(auto bound, model::bind_weights(skeleton.config, checkpoint));
  skeleton.weights = model::place_weights(std::move(bound));
  if (checkpoint.tokenizer) {
    SNUG_TRY(take_tokenizer(skeleton, std::move(*checkpoint.tokenizer)));
    checkpoint.tokenizer.reset();
  } else {
    skeleton.tokenizer_error = checkpoint.tokenizer_error;
  }
  collect_eos(skeleton);
  return skeleton;
}

Result<Skeleton> open_tokenizer(const std::string& model) {
  if (!std::filesystem::is_directory(model)) return open_skeleton(model);
  Skeleton skeleton;
  skeleton.name = model;
  SNUG_ASSIGN(auto files, formats::read_tokenizer_folder(model));
  SNUG_TRY(take_tokenizer(skeleton, std::move(files)));
  collect_eos(skeleton);
  return skeleton;
}

}  // namespace snug::llm
