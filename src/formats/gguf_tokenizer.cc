// tokenizer.ggml.* of GGUF. Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and, for the
// names of pre-tokenisers and what they imply,
// https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp
#include <fmt/format.h>

#include <algorithm>

#include "formats/bad_file.h"
#include "formats/bpe_vocab.h"
#include "formats/tokenizer_file.h"

namespace snug::formats {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kFetchAgain = "fetch the file again";

enum TokenType : std::int64_t { normal = 1, control = 3, user_defined = 4, unused = 5, byte = 6 };

Status read_tokens(const Gguf& gguf, BpeVocab& vocab, std::vector<text::AddedToken>& added) {
  const auto* tokens = gguf.get_strings(kTokens);
  if (tokens == nullptr || tokens->empty()) {
    return bad_file(gguf.name, fmt::format("{} is missing", kTokens), "convert the model with its tokenizer");
  }
  if (tokens->size() > static_cast<std::size_t>(text::kMaxTokenId)) {
    return bad_file(gguf.name,
                    fmt::format("{} has {} entries, more than the {} supported", kTokens, tokens->size(),
                                text::kMaxTokenId),
                    kFetchAgain);
  }
  const std::vector<std::int64_t>* types = nullptr;
  if (const auto found = gguf.metadata.find(kTypes); found != gguf.metadata.end()) {
    types = std::get_if<std::vector<std::int64_t>>(&found->second);
    if (types == nullptr || types->size() != tokens->size()) {
      return bad_file(
          gguf.name,
          fmt::format("{} must be a list of {} whole numbers, one for each token", kTypes, tokens->size()),
          kFetchAgain);
    }
  }
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    const std::string_view text = (*tokens)[i];
    const auto id = static_cast<text::TokenId>(i);
    const std::int64_t type = types == nullptr ? normal : (*types)[i];
    if (vocab.texts.size() + text.size() > kMaxTokenizerBytes) {
      return bad_file(gguf.name, fmt::format("{} is too large for a vocabulary", kTokens), kFetchAgain);
    }
    // Also in the vocabulary, as in tokenizer.json: a merge may make a token that is an added one too.
    vocab.add_token(text, id);
    if ((type == control || type == user_defined) && !text.empty()) {
      added.push_back({.id = id, .content = std::string(text), .special = type == control});
    }
  }
  return {};
}

Status read_merges(const Gguf& gguf, BpeVocab& vocab) {
  const auto* merges = gguf.get_strings(kMerges);
  if (merges == nullptr) {
    return bad_file(gguf.name, fmt::format("{} is missing", kMerges), "convert the model with its tokenizer");
  }
  for (const std::string_view merge : *merges) {
    if (vocab.merge_texts.size() + merge.size() > kMaxTokenizerBytes || !vocab.add_merge_line(merge)) {
      return bad_file(
          gguf.name,
          fmt::format("{}[{}] must be two tokens with a space between", kMerges, vocab.merges.size()),
          kFetchAgain);
    }
  }
  return {};
}

// Sets the pattern, and what goes with it. A name that is not known (a fine-tuned model's conversion may lack
// it) means the architecture's usual one.
Status read_pre(const Gguf& gguf, text::TokenizerSpec& spec) {
  SNUG_ASSIGN(const auto pre, gguf.get_string("tokenizer.ggml.pre"));
  SNUG_ASSIGN(const auto architecture, gguf.get_string("general.architecture"));
  std::string name(pre.value_or(""));
  spec.split_patterns = text::split_patterns_by_name(name);
  if (spec.split_patterns.empty()) {
    name = architecture.value_or("").starts_with("qwen2") ? "qwen2" : "gpt-2";
    spec.split_patterns = text::split_patterns_by_name(name);
  }
  spec.nfc = name == "qwen2";
  const bool llama3 = spec.split_patterns == text::split_patterns_by_name("llama-bpe");
  spec.ignore_merges = spec.add_bos = llama3;
  return {};
}

}  // namespace

Result<TokenizerFiles> read_gguf_tokenizer(const Gguf& gguf) {
  SNUG_ASSIGN(const auto model, gguf.get_string("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return bad_file(
        gguf.name,
        fmt::format("tokenizer.ggml.model {:?} is not supported; supported: \"gpt2\" (byte-level BPE)",
                    model.value_or("").substr(0, 60)),
        "use a model with a byte-level BPE tokenizer, such as Qwen2.5 or SmolLM2");
  }
  TokenizerFiles files;
  text::TokenizerSpec& spec = files.spec;
  spec.name = gguf.name;
  BpeVocab vocab;
  SNUG_TRY(read_tokens(gguf, vocab, spec.added));
  SNUG_TRY(read_merges(gguf, vocab));
  SNUG_TRY(fill_spec(std::move(vocab), gguf.name, UnknownMerges::skip, spec));
  SNUG_TRY(read_pre(gguf, spec));

  const auto last = static_cast<std::int64_t>(spec.tokens.size()) - 1;
  SNUG_ASSIGN(const auto bos, gguf.get_int("tokenizer.ggml.bos_token_id", 0, last));
  SNUG_ASSIGN(const auto eos, gguf.get_int("tokenizer.ggml.eos_token_id", 0, last));
  SNUG_ASSIGN(const auto add_bos, gguf.get_bool("tokenizer.ggml.add_bos_token"));
  SNUG_ASSIGN(const auto add_eos, gguf.get_bool("tokenizer.ggml.add_eos_token"));
  spec.bos = static_cast<text::TokenId>(bos.value_or(-1));
  spec.eos = static_cast<text::TokenId>(eos.value_or(-1));
  spec.add_bos = add_bos.value_or(spec.add_bos);
  spec.add_eos = add_eos.value_or(false);
  // unknown_token_id is not read: byte-level BPE leaves out a byte that has no token.
  if (bos) files.bos_token = spec.tokens[static_cast<std::size_t>(*bos)];
  if (eos) files.eos_token = spec.tokens[static_cast<std::size_t>(*eos)];

  SNUG_ASSIGN(const auto chat_template, gguf.get_string("tokenizer.chat_template"));
  if (chat_template) {
    files.chat_template = *chat_template;
    files.chat_template_name = fmt::format("{}: tokenizer.chat_template", gguf.name);
  }
  return files;
}

}  // namespace snug::formats
