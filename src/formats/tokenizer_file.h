// Tokenizer files of every kind, to text::TokenizerSpec.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"
#include "formats/gguf.h"
#include "text/tokenizer.h"

namespace snug::formats {

struct TokenizerFiles {
  text::TokenizerSpec spec;
  std::string chat_template;         // empty if none
  std::string chat_template_name;    // the file it came from, for messages
  std::string bos_token, eos_token;  // their text, for templates; empty if none
};

// The text of a tokenizer.json; `name` begins the messages. Byte-level BPE only: model BPE without
// byte_fallback, normalizer NFC or null, pre_tokenizer of Split (Isolated), Digits and ByteLevel, decoder
// ByteLevel, post_processor ByteLevel or TemplateProcessing. bad_file naming the field and what is supported
// for anything else.
Result<text::TokenizerSpec> parse_tokenizer_json(std::string_view text, std::string_view name);

// tokenizer.json (preferred), or vocab.json + merges.txt; tokenizer_config.json for added tokens, eos and the
// chat template; chat_template.jinja or chat_template.json take precedence for the template.
// bad_file naming tokenizer.json where the folder has neither.
Result<TokenizerFiles> read_tokenizer_folder(const std::filesystem::path& folder);

// tokenizer.ggml.*: model "gpt2" with a known or unknown `pre` (unknown: qwen2's pattern for architecture
// qwen2, else gpt-2's).
Result<TokenizerFiles> read_gguf_tokenizer(const Gguf& gguf);

}  // namespace snug::formats
