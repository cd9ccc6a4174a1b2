#include "formats/tokenizer_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "base/json.h"
#include "formats/bad_file.h"
#include "formats/tokenizer_json.h"
#include "formats/vocab_json.h"

namespace snug::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

bool has_file(const fs::path& path) {
  std::error_code code;
  return fs::is_regular_file(path, code);
}

std::string_view as_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// The object in a small JSON file; an empty one if there is no such file.
Result<Json> read_json_object(const fs::path& path) {
  if (!has_file(path)) return Json::object();
  SNUG_ASSIGN(const std::string text, read_text_file(path, kMaxConfigBytes));
  SNUG_ASSIGN(Json value, parse_json(text, path.string()));
  if (!value.is_object()) return bad_file(path.string(), "must be an object", "fetch the file again");
  return value;
}

// "eos_token" and the like: a string, or an object with the string under "content". Empty if absent.
Result<std::string> token_text(const Json& config, const char* field, std::string_view name) {
  const auto found = config.find(field);
  if (found != config.end() && found->is_object()) {
    SNUG_ASSIGN(const auto content, optional_string(*found, "content", fmt::format("{}: {}", name, field)));
    return content.value_or("");
  }
  SNUG_ASSIGN(const auto content, optional_string(config, field, name));
  return content.value_or("");
}

// added_tokens_decoder: {"151643": {"content": …}, …}. What the specification has already is left as it is
// there.
Status read_added_tokens_decoder(const Json& config, std::string_view name, text::TokenizerSpec& spec) {
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder == config.end() || decoder->is_null()) return {};
  if (!decoder->is_object())
    return bad_file(name, "added_tokens_decoder must be an object", "fetch the file again");
  const std::size_t known = spec.added.size();
  for (const auto& [key, value] : decoder->items()) {
    const std::string where = fmt::format("{}: added_tokens_decoder.{}", name, key.substr(0, 20));
    text::TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > text::kMaxTokenId) {
      return bad_file(where, fmt::format("the key must be an id from 0 to {}", text::kMaxTokenId),
                      "fetch the file again");
    }
    SNUG_ASSIGN(auto token, read_added_token(value, id, where));
    const auto is_same = [&](const text::AddedToken& a) { return a.content == token.content; };
    if (std::any_of(spec.added.begin(), spec.added.begin() + static_cast<std::ptrdiff_t>(known), is_same))
      continue;
    spec.added.push_back(std::move(token));
  }
  return {};
}

// added_tokens.json: {"<|im_end|>": 151645, …}, how checkpoints before added_tokens_decoder have it.
Status read_added_tokens_json(const fs::path& path, text::TokenizerSpec& spec) {
  SNUG_ASSIGN(const Json added, read_json_object(path));
  for (const auto& [content, value] : added.items()) {
    SNUG_ASSIGN(const auto id, required_int(added, content, path.string(), 0, text::kMaxTokenId));
    const std::string& text = content;  // clang 14 cannot capture a structured binding
    const auto is_same = [&](const text::AddedToken& a) { return a.content == text; };
    if (content.empty() || std::any_of(spec.added.begin(), spec.added.end(), is_same)) continue;
    spec.added.push_back({.id = static_cast<text::TokenId>(id), .content = content, .special = true});
  }
  return {};
}

// vocab.json + merges.txt say neither pattern nor normaliser: those are the tokenizer class's.
Status read_class(const Json& config, std::string_view config_name, text::TokenizerSpec& spec) {
  SNUG_ASSIGN(const auto class_name, optional_string(config, "tokenizer_class", config_name));
  if (!class_name || class_name->starts_with("Qwen2")) {
    spec.split_patterns = text::split_patterns_by_name("qwen2");
    spec.nfc = true;
    return {};
  }
  if (!class_name->starts_with("GPT2")) {
    return bad_file(
        config_name,
        fmt::format("tokenizer_class {:?} is not supported with vocab.json and merges.txt; supported: "
                    "Qwen2Tokenizer, GPT2Tokenizer",
                    class_name->substr(0, 60)),
        "put the model's tokenizer.json into the folder");
  }
  spec.split_patterns = text::split_patterns_by_name("gpt-2");
  SNUG_ASSIGN(const auto prefix, optional_bool(config, "add_prefix_space", config_name));
  SNUG_ASSIGN(const auto bos, optional_bool(config, "add_bos_token", config_name));
  spec.add_prefix_space = prefix.value_or(false);
  spec.add_bos = bos.value_or(false);
  return {};
}

Result<text::TokenizerSpec> read_vocab_and_merges(const fs::path& folder, const Json& config,
                                                  std::string_view config_name) {
  const fs::path vocab_path = folder / "vocab.json", merges_path = folder / "merges.txt";
  text::TokenizerSpec spec;
  spec.name = vocab_path.string();
  BpeVocab vocab;
  {
    SNUG_ASSIGN(const auto file, MappedFile::open(vocab_path));
    SNUG_ASSIGN(const Json rest, read_vocab_json(as_text(file), spec.name, VocabLayout::vocab_json, vocab));
    if (vocab.entries.empty() || !rest.is_null()) {
      return bad_file(spec.name, "must be an object of tokens and their ids, not empty",
                      "fetch the file again");
    }
  }
  {
    SNUG_ASSIGN(const auto file, MappedFile::open(merges_path));
    if (file.bytes().size() > kMaxTokenizerBytes) {
      return bad_file(merges_path.string(), "is too large for a list of merges",
                      "check that this is the right file");
    }
    SNUG_TRY(read_merges_text(as_text(file), merges_path.string(), vocab));
  }
  SNUG_TRY(fill_spec(std::move(vocab), merges_path.string(), UnknownMerges::refuse, spec));
  SNUG_TRY(read_class(config, config_name, spec));
  return spec;
}

// tokenizer_config.json's chat_template: the text, or a list of named ones, of which "default" counts.
Result<std::string> config_template(const Json& config, std::string_view name) {
  const auto found = config.find("chat_template");
  if (found == config.end() || !found->is_array()) {
    SNUG_ASSIGN(const auto text, optional_string(config, "chat_template", name));
    return text.value_or("");
  }
  const std::string where = fmt::format("{}: chat_template", name);
  for (const Json& item : *found) {
    SNUG_ASSIGN(const auto item_name, optional_string(item, "name", where));
    SNUG_ASSIGN(const auto text, optional_string(item, "template", where));
    if (item_name == "default" && text) return *text;
  }
  return std::string();
}

Status read_chat_template(const fs::path& folder, const Json& config, const fs::path& config_path,
                          TokenizerFiles& files) {
  const fs::path jinja = folder / "chat_template.jinja", json = folder / "chat_template.json";
  if (has_file(jinja)) {
    SNUG_ASSIGN(files.chat_template, read_text_file(jinja, kMaxConfigBytes));
    files.chat_template_name = jinja.string();
    return {};
  }
  if (has_file(json)) {
    SNUG_ASSIGN(const Json object, read_json_object(json));
    SNUG_ASSIGN(files.chat_template, config_template(object, json.string()));
    files.chat_template_name = json.string();
    if (!files.chat_template.empty()) return {};
  }
  SNUG_ASSIGN(files.chat_template, config_template(config, config_path.string()));
  files.chat_template_name = files.chat_template.empty() ? "" : config_path.string();
  return {};
}

}  // namespace

Result<TokenizerFiles> read_tokenizer_folder(const fs::path& folder) {
  const fs::path path = folder / "tokenizer.json", config_path = folder / "tokenizer_config.json";
  const std::string config_name = config_path.string();
  SNUG_ASSIGN(const Json config, read_json_object(config_path));
  TokenizerFiles files;
  if (has_file(path)) {
    SNUG_ASSIGN(const auto file, MappedFile::open(path));
    SNUG_ASSIGN(files.spec, parse_tokenizer_json(as_text(file), path.string()));
  } else if (has_file(folder / "vocab.json") && has_file(folder / "merges.txt")) {
    SNUG_ASSIGN(files.spec, read_vocab_and_merges(folder, config, config_name));
  } else {
    return bad_file(folder.string(), "has no tokenizer.json, nor vocab.json with merges.txt",
                    "copy tokenizer.json from the model this one was made from into that folder");
  }
  text::TokenizerSpec& spec = files.spec;
  SNUG_TRY(read_added_tokens_decoder(config, config_name, spec));
  if (!has_file(path)) SNUG_TRY(read_added_tokens_json(folder / "added_tokens.json", spec));
  SNUG_ASSIGN(files.bos_token, token_text(config, "bos_token", config_name));
  SNUG_ASSIGN(files.eos_token, token_text(config, "eos_token", config_name));
  if (spec.bos < 0) spec.bos = find_token(spec, files.bos_token);
  if (spec.eos < 0) spec.eos = find_token(spec, files.eos_token);
  SNUG_TRY(read_chat_template(folder, config, config_path, files));
  return files;
}

}  // namespace snug::formats
