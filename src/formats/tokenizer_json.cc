// tokenizer.json of Hugging Face tokenizers. The format has no specification; this follows
// https://github.com/huggingface/tokenizers
// (tokenizers/src/{models/bpe,normalizers,pre_tokenizers,processors}).
#include <fmt/format.h>

#include <algorithm>

#include "formats/bad_file.h"
#include "formats/tokenizer_file.h"
#include "formats/tokenizer_json.h"
#include "formats/vocab_json.h"
#include "text/pretokenizer.h"

namespace snug::formats {
namespace {

constexpr std::size_t kMaxSplitPatterns = 16;

Error unsupported(std::string_view name, std::string_view field, std::string_view found,
                  std::string_view supported) {
  return bad_file(
      name, fmt::format("{} {:?} is not supported; supported: {}", field, found.substr(0, 60), supported),
      "use a model with a byte-level BPE tokenizer, such as Qwen2.5 or SmolLM2");
}

Error wrong(std::string_view name, std::string_view field, std::string_view expected) {
  return bad_file(name, fmt::format("{} must be {}", field, expected), "fetch the file again");
}

bool is_null(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found == object.end() || found->is_null();
}

// The "type" of the object that `field` names.
Result<std::string> type_of(const Json& value, std::string_view name, std::string_view field) {
  if (!value.is_object()) return wrong(name, field, "an object or null");
  const auto type = value.find("type");
  if (type == value.end() || !type->is_string())
    return wrong(name, fmt::format("{}.type", field), "a string");
  return type->get<std::string>();
}

// Calls visit(type, object) for a component, or for each one of a Sequence, whose list is under `list`.
template <class Visit>
Status for_each_component(const Json& value, std::string_view name, std::string_view field, const char* list,
                          Visit&& visit) {
  if (value.is_null()) return {};
  SNUG_ASSIGN(const std::string type, type_of(value, name, field));
  if (type != "Sequence") return visit(type, value);
  const auto items = value.find(list);
  if (items == value.end() || !items->is_array())
    return wrong(name, fmt::format("{}.{}", field, list), "a list");
  for (const Json& item : *items) SNUG_TRY(for_each_component(item, name, field, list, visit));
  return {};
}

Result<bool> bool_or(const Json& object, std::string_view field, std::string_view name, bool otherwise) {
  SNUG_ASSIGN(const auto value, optional_bool(object, field, name));
  return value.value_or(otherwise);
}

Status read_normalizer(const Json& value, std::string_view name, text::TokenizerSpec& spec) {
  return for_each_component(value, name, "normalizer", "normalizers",
                            [&](std::string_view type, const Json&) {
                              if (type != "NFC")
                                return Status(unsupported(name, "normalizer", type, "NFC or null"));
                              spec.nfc = true;
                              return Status();
                            });
}

Status read_split(const Json& split, std::string_view name, text::TokenizerSpec& spec) {
  const std::string where = fmt::format("{}: pre_tokenizer Split", name);
  SNUG_ASSIGN(const auto behavior, optional_string(split, "behavior", where));
  SNUG_ASSIGN(const bool invert, bool_or(split, "invert", where, false));
  if (behavior != "Isolated" || invert) {
    return unsupported(name, "pre_tokenizer Split behavior", behavior.value_or(""),
                       "Isolated without invert");
  }
  const auto pattern = split.find("pattern");
  if (pattern == split.end() || !pattern->is_object()) {
    return wrong(name, "pre_tokenizer Split pattern", "an object with Regex or String");
  }
  SNUG_ASSIGN(const auto regex, optional_string(*pattern, "Regex", where));
  SNUG_ASSIGN(const auto literal, optional_string(*pattern, "String", where));
  if (regex.has_value() == literal.has_value()) {
    return wrong(name, "pre_tokenizer Split pattern", "an object with Regex or String");
  }
  spec.split_patterns.push_back(regex ? *regex : text::quote_pattern(*literal));
  return {};
}

Status read_pre_tokenizer(const Json& value, std::string_view name, text::TokenizerSpec& spec) {
  bool byte_level = false;
  const auto visit = [&](std::string_view type, const Json& part) -> Status {
    const std::string where = fmt::format("{}: pre_tokenizer {}", name, type);
    if (byte_level)
      return unsupported(name, "pre_tokenizer after ByteLevel", type, "ByteLevel as the last one");
    if (type == "Split") {
      SNUG_TRY(read_split(part, name, spec));
    } else if (type == "Digits") {
      SNUG_ASSIGN(const bool individual, bool_or(part, "individual_digits", where, false));
      spec.split_patterns.push_back(individual ? "\\p{N}" : "\\p{N}+");
    } else if (type == "ByteLevel") {
      byte_level = true;
      SNUG_ASSIGN(spec.add_prefix_space, bool_or(part, "add_prefix_space", where, true));
      SNUG_ASSIGN(const bool use_regex, bool_or(part, "use_regex", where, true));
      if (spec.add_prefix_space && !spec.split_patterns.empty()) {
        return unsupported(name, "pre_tokenizer", "ByteLevel with add_prefix_space after others",
                           "add_prefix_space where ByteLevel is the only one");
      }
      if (use_regex) spec.split_patterns.push_back(text::split_patterns_by_name("gpt-2").front());
    } else {
      return unsupported(name, "pre_tokenizer", type, "Split, Digits, ByteLevel and Sequence of these");
    }
    if (spec.split_patterns.size() > kMaxSplitPatterns) {
      return wrong(name, "pre_tokenizer", fmt::format("at most {} parts", kMaxSplitPatterns));
    }
    return {};
  };
  SNUG_TRY(for_each_component(value, name, "pre_tokenizer", "pretokenizers", visit));
  if (!byte_level)
    return unsupported(name, "pre_tokenizer", "without ByteLevel", "ByteLevel as the last one");
  return {};
}

Status read_decoder(const Json& value, std::string_view name) {
  bool byte_level = false;
  SNUG_TRY(for_each_component(value, name, "decoder", "decoders",
                              [&](std::string_view type, const Json&) -> Status {
                                if (type != "ByteLevel" || byte_level)
                                  return unsupported(name, "decoder", type, "ByteLevel");
                                byte_level = true;
                                return {};
                              }));
  if (!byte_level) return unsupported(name, "decoder", "null", "ByteLevel");
  return {};
}

// TemplateProcessing's "single": at most one special token before the text and one after it.
Status read_template(const Json& part, std::string_view name, text::TokenizerSpec& spec) {
  constexpr std::string_view kField = "post_processor.single";
  constexpr std::string_view kExpected =
      "a list of {\"Sequence\": …} once and {\"SpecialToken\": …} around it";
  const auto single = part.find("single"), tokens = part.find("special_tokens");
  if (single == part.end() || !single->is_array()) return wrong(name, kField, kExpected);
  bool after_text = false;
  for (const Json& item : *single) {
    if (!item.is_object()) return wrong(name, kField, kExpected);
    if (item.contains("Sequence")) {
      if (after_text) return wrong(name, kField, kExpected);
      after_text = true;
      continue;
    }
    const auto special = item.find("SpecialToken");
    if (special == item.end()) return wrong(name, kField, kExpected);
    SNUG_ASSIGN(const auto id, optional_string(*special, "id", fmt::format("{}: {}", name, kField)));
    const Json* ids = nullptr;
    if (id && tokens != part.end() && tokens->is_object() && tokens->contains(*id)) {
      const Json& token = (*tokens)[*id];
      if (token.is_object() && token.contains("ids")) ids = &token["ids"];
    }
    if (ids == nullptr || !ids->is_array() || ids->size() != 1 || !(*ids)[0].is_number_unsigned() ||
        (*ids)[0].get<std::uint64_t>() > static_cast<std::uint64_t>(text::kMaxTokenId)) {
      return wrong(name, "post_processor.special_tokens", "an entry with one id for each SpecialToken");
    }
    bool& add = after_text ? spec.add_eos : spec.add_bos;
    if (add)
      return unsupported(name, kField, "two special tokens side by side",
                         "one before and one after the text");
    add = true;
    (after_text ? spec.eos : spec.bos) = (*ids)[0].get<text::TokenId>();
  }
  return {};
}

Status read_post_processor(const Json& value, std::string_view name, text::TokenizerSpec& spec) {
  return for_each_component(value, name, "post_processor", "processors",
                            [&](std::string_view type, const Json& part) -> Status {
                              if (type == "ByteLevel") return {};  // moves offsets only
                              if (type == "TemplateProcessing") return read_template(part, name, spec);
                              return unsupported(name, "post_processor", type,
                                                 "TemplateProcessing, ByteLevel and Sequence of these");
                            });
}

Status read_model(const Json& model, std::string_view name, text::TokenizerSpec& spec, std::string& unk) {
  const std::string where = fmt::format("{}: model", name);
  SNUG_ASSIGN(const auto type, optional_string(model, "type", where));
  if (type.value_or("BPE") != "BPE") return unsupported(name, "model.type", *type, "BPE");
  SNUG_ASSIGN(const auto dropout, optional_number(model, "dropout", where));
  if (dropout.value_or(0) != 0)
    return unsupported(name, "model.dropout", fmt::format("{}", *dropout), "null");
  for (const char* field : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    SNUG_ASSIGN(const auto affix, optional_string(model, field, where));
    if (!affix.value_or("").empty()) return unsupported(name, fmt::format("model.{}", field), *affix, "none");
  }
  for (const char* field : {"fuse_unk", "byte_fallback"}) {
    SNUG_ASSIGN(const bool on, bool_or(model, field, where, false));
    if (on) return unsupported(name, fmt::format("model.{}", field), "true", "false");
  }
  SNUG_ASSIGN(spec.ignore_merges, bool_or(model, "ignore_merges", where, false));
  SNUG_ASSIGN(const auto unk_token, optional_string(model, "unk_token", where));
  unk = unk_token.value_or("");
  return {};
}

}  // namespace

Result<text::AddedToken> read_added_token(const Json& value, text::TokenId id, std::string_view where) {
  text::AddedToken token;
  token.id = id;
  SNUG_ASSIGN(const auto content, optional_string(value, "content", where));
  if (!content || content->empty()) return wrong(where, "content", "a string with something in it");
  token.content = *content;
  SNUG_ASSIGN(token.special, bool_or(value, "special", where, false));
  SNUG_ASSIGN(token.lstrip, bool_or(value, "lstrip", where, false));
  SNUG_ASSIGN(token.rstrip, bool_or(value, "rstrip", where, false));
  SNUG_ASSIGN(token.single_word, bool_or(value, "single_word", where, false));
  SNUG_ASSIGN(token.normalized, bool_or(value, "normalized", where, !token.special));
  return token;
}

text::TokenId find_token(const text::TokenizerSpec& spec, std::string_view content) {
  if (content.empty()) return -1;
  for (const text::AddedToken& added : spec.added) {
    if (added.content == content) return added.id;
  }
  const auto found = std::ranges::find(spec.tokens, content);
  return found == spec.tokens.end() ? -1 : static_cast<text::TokenId>(found - spec.tokens.begin());
}

Result<text::TokenizerSpec> parse_tokenizer_json(std::string_view text, std::string_view name) {
  text::TokenizerSpec spec;
  spec.name = name;
  BpeVocab vocab;
  SNUG_ASSIGN(const Json root, read_vocab_json(text, name, VocabLayout::tokenizer_json, vocab));
  if (!root.is_object() || is_null(root, "model") || !root["model"].is_object()) {
    return wrong(name, "model", "an object with vocab and merges");
  }
  std::string unk;
  SNUG_TRY(read_model(root["model"], name, spec, unk));
  if (vocab.entries.empty())
    return wrong(name, "model.vocab", "an object of tokens and their ids, not empty");
  SNUG_TRY(fill_spec(std::move(vocab), name, UnknownMerges::refuse, spec));
  const auto part = [&](const char* field) { return root.contains(field) ? root[field] : Json(); };
  SNUG_TRY(read_normalizer(part("normalizer"), name, spec));
  SNUG_TRY(read_pre_tokenizer(part("pre_tokenizer"), name, spec));
  SNUG_TRY(read_decoder(part("decoder"), name));
  SNUG_TRY(read_post_processor(part("post_processor"), name, spec));
  const Json added = part("added_tokens");
  if (!added.is_null() && !added.is_array()) return wrong(name, "added_tokens", "a list");
  for (const Json& item : added) {
    const std::string where = fmt::format("{}: added_tokens[{}]", name, spec.added.size());
    SNUG_ASSIGN(const auto id, required_int(item, "id", where, 0, text::kMaxTokenId));
    SNUG_ASSIGN(auto token, read_added_token(item, static_cast<text::TokenId>(id), where));
    spec.added.push_back(std::move(token));
  }
  spec.unk = find_token(spec, unk);
  if (!unk.empty() && spec.unk < 0) {
    return bad_file(name, fmt::format("model.unk_token {:?} is not in the vocabulary", unk),
                    "fetch the file again");
  }
  return spec;
}

}  // namespace snug::formats
