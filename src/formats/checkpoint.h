// The skeleton of a checkpoint: everything but the weights' bytes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "formats/gguf.h"
#include "formats/hf_config.h"
#include "formats/tokenizer_file.h"
#include "formats/weight_index.h"

namespace snug::formats {

struct Checkpoint {
  enum class Kind { hugging_face, gguf };
  Kind kind = Kind::hugging_face;
  std::filesystem::path path;
  HfConfig config;  // for GGUF: filled in from its metadata
  GenerationConfig generation;
  WeightIndex weights;
  std::optional<TokenizerFiles> tokenizer;  // absent where the checkpoint has none (token ids only)
  std::optional<Error> tokenizer_error;     // why it is absent
};

// A Hugging Face folder or a .gguf file. Opens and checks headers; touches no weight.
// Other things people pass (a .bin/.pt checkpoint, an adapter folder, a folder without config.json) get an
// error that says so.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

// The same fields from GGUF metadata (general.architecture qwen2 or llama).
Result<HfConfig> config_from_gguf(const Gguf& gguf);

}  // namespace snug::formats
