// A model before its weights: configuration, bound tensors, tokenizer, chat template. Opening one touches no
// weight.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "engine/sampling_params.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/size_table.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace snug::llm {

struct Skeleton {
  std::string name;                               // the MODEL argument
  std::optional<formats::Checkpoint> checkpoint;  // absent for random: models
  std::string random_type;                        // "q4_0", for random: models
  model::Config config;
  std::vector<model::PlacedWeight> weights;
  std::optional<text::Tokenizer> tokenizer;  // absent: only token ids can be given
  std::optional<Error> tokenizer_error;      // why
  std::optional<text::ChatTemplate> chat_template;
  std::string bos_token, eos_token;   // their text, for templates
  std::vector<std::int32_t> eos_ids;  // all that any file names, and <|im_end|> where there is a template

  // Ids that may be sampled: those with text, or all where there is no tokenizer.
  int usable_vocab() const;
  std::int64_t weight_bytes() const;

  // The sampling values a checkpoint ships, over the general defaults.
  engine::SamplingParams default_sampling() const;

  // OpenAI-style messages to prompt text. usage error where there is no template or the messages do not suit
  // it.
  Result<std::string> render_chat(const OrderedJson& messages, const OrderedJson& tools,
                                  bool add_generation_prompt) const;
  // usage error where there is no tokenizer.
  Result<std::vector<std::int32_t>> encode(std::string_view text) const;
};

// `model` is a Hugging Face folder, a .gguf file, or random:NAME[:TYPE].
Result<Skeleton> open_skeleton(const std::string& model);

// Tokenizer and chat template alone, of a folder or .gguf file (a folder with only tokenizer files will do).
Result<Skeleton> open_tokenizer(const std::string& model);

}  // namespace snug::llm
