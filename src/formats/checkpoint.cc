#include "formats/checkpoint.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <fstream>

#include "base/json.h"
#include "formats/bad_file.h"
#include "formats/gguf_files.h"
#include "formats/safetensors.h"

namespace snug::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = 4 << 20;
constexpr const char* kConvert =
    "convert it to safetensors: load it with transformers and call save_pretrained(folder, "
    "safe_serialization=True)";

bool is_file(const fs::path& path) {
  std::error_code code;
  return fs::is_regular_file(path, code);
}

bool is_pickle(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt";
}

// The first file in the folder that `wanted` accepts; empty if none.
template <class Wanted>
fs::path first_file(const fs::path& folder, Wanted&& wanted) {
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    if (wanted(it->path())) return it->path();
  }
  return {};
}

bool has_safetensors(const fs::path& folder) {
  return is_file(folder / "model.safetensors") || is_file(folder / "model.safetensors.index.json");
}

Result<Json> read_json_object(const fs::path& path) {
  SNUG_ASSIGN(const std::string text, read_text_file(path, kMaxConfigBytes));
  SNUG_ASSIGN(Json json, parse_json(text, path.string()));
  if (!json.is_object()) return bad_file(path.string(), "must be a JSON object", "fetch the file again");
  return json;
}

// An adapter alone is not a model; its config says which model it belongs to.
Error adapter_only(const fs::path& folder) {
  const fs::path path = folder / "adapter_config.json";
  const auto json = read_json_object(path);
  if (!json.ok()) return json.error();
  const auto base = optional_string(*json, "base_model_name_or_path", path.string());
  if (!base.ok()) return base.error();
  if (!base->has_value()) {
    return bad_file(
        path.string(), "this folder holds only an adapter, and base_model_name_or_path is missing",
        "set base_model_name_or_path in adapter_config.json to the base model, and give that model here");
  }
  return bad_file(
      path.string(),
      fmt::format("this folder holds only an adapter; its base model is {} (base_model_name_or_path)",
                  **base),
      "give the base model here; if it has moved, edit base_model_name_or_path in adapter_config.json");
}

Status check_folder(const fs::path& folder) {
  const bool has_config = is_file(folder / "config.json");
  if (!has_safetensors(folder)) {
    if (is_file(folder / "adapter_config.json")) return adapter_only(folder);
    if (const fs::path pickle = first_file(folder, is_pickle); !pickle.empty()) {
      return bad_file(
          folder.string(),
          fmt::format("only PyTorch pickles such as {} are there, which can run code when they are read",
                      pickle.filename().string()),
          kConvert);
    }
    const fs::path gguf =
        first_file(folder, [](const fs::path& path) { return path.extension() == ".gguf"; });
    if (!has_config && !gguf.empty()) {
      return bad_file(folder.string(), "config.json is missing",
                      fmt::format("give the file itself: {}", gguf.string()));
    }
  }
  if (!has_config) {
    return bad_file(folder.string(), "config.json is missing",
                    "give a folder with config.json and safetensors, or a .gguf file");
  }
  return {};
}

Result<Checkpoint> open_folder(const fs::path& folder) {
  SNUG_TRY(check_folder(folder));
  Checkpoint out;
  out.kind = Checkpoint::Kind::hugging_face;
  out.path = folder;
  const fs::path config = folder / "config.json";
  SNUG_ASSIGN(const Json json, read_json_object(config));
  SNUG_ASSIGN(out.config, parse_hf_config(json, config.string()));
  if (out.config.quantization_method) {
    return bad_file(
        config.string(),
        fmt::format("quantization_config.quant_method {} is not supported", *out.config.quantization_method),
        "use the checkpoint before quantisation, or a GGUF of it");
  }
  if (const fs::path generation = folder / "generation_config.json"; is_file(generation)) {
    SNUG_ASSIGN(const Json fields, read_json_object(generation));
    SNUG_ASSIGN(out.generation, parse_generation_config(fields, generation.string()));
  }
  SNUG_ASSIGN(out.weights, open_safetensors_folder(folder));
  if (auto tokenizer = read_tokenizer_folder(folder); tokenizer.ok()) {
    out.tokenizer = std::move(tokenizer).value();
  } else {
    out.tokenizer_error = tokenizer.error();
  }
  return out;
}

Result<Checkpoint> open_gguf(const fs::path& path) {
  Checkpoint out;
  out.kind = Checkpoint::Kind::gguf;
  out.path = path;
  SNUG_ASSIGN(GgufFiles files, open_gguf_files(path));
  SNUG_ASSIGN(out.config, config_from_gguf(files.gguf));
  if (auto tokenizer = read_gguf_tokenizer(files.gguf); tokenizer.ok()) {
    out.tokenizer = std::move(tokenizer).value();
  } else {
    out.tokenizer_error = tokenizer.error();
  }
  out.weights = std::move(files.weights);
  return out;
}

bool has_gguf_magic(const fs::path& path) {
  std::array<char, 4> magic{};
  std::ifstream in(path, std::ios::binary);
  return in.read(magic.data(), magic.size()) && std::memcmp(magic.data(), "GGUF", magic.size()) == 0;
}

}  // namespace

Result<Checkpoint> open_checkpoint(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) {
    return bad_file(path.string(), "no such file or folder",
                    "check the path, or fetch a model with `snug pull ID`");
  }
  if (fs::is_directory(status)) return open_folder(path);
  if (path.extension() == ".gguf" || has_gguf_magic(path)) return open_gguf(path);
  if (path.extension() == ".safetensors" || path.extension() == ".json") {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    return bad_file(path.string(), "is one file of a checkpoint",
                    fmt::format("give its folder: {}", folder.string()));
  }
  if (is_pickle(path))
    return bad_file(path.string(), "is a PyTorch pickle, which can run code when it is read", kConvert);
  return bad_file(path.string(), "is not a model", "give a Hugging Face folder or a .gguf file");
}

}  // namespace snug::formats
