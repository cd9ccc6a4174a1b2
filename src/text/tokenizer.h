// Byte-level BPE, exact with Hugging Face tokenizers for Qwen2.5 and SmolLM2.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace snug::text {

using TokenId = std::int32_t;

inline constexpr TokenId kMaxTokenId = (1 << 24) - 1;

// Tables are by id, so ids must be about as dense as the tokens are many; a larger id is a damaged file.
inline constexpr std::size_t max_plausible_id(std::size_t tokens) {
  return 4 * tokens + 65536;
}

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;  // left out by skip_special decoding
  bool lstrip = false, rstrip = false, single_word = false, normalized = false;
};

// What a tokenizer file says, whatever kind of file it was (formats/tokenizer_file.h fills it in).
struct TokenizerSpec {
  std::string name;                 // for messages: the file
  std::vector<std::string> tokens;  // by id, in byte-level characters; empty where an id is not used
  // Pairs in rank order as indices into `tokens`: left, right and the token they make.
  struct Merge {
    TokenId left, right, result;
  };
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  // Pre-tokeniser: each pattern isolates its matches, one pattern after another (PCRE2 syntax, UTF).
  std::vector<std::string> split_patterns;
  bool nfc = false;                       // normalise to NFC first
  bool add_prefix_space = false;          // a space before each stretch of text that does not begin with one
  bool ignore_merges = false;             // a word that is a token is taken whole
  bool add_bos = false, add_eos = false;  // when encoding with add_special
  TokenId bos = -1, eos = -1;
  TokenId unk = -1;  // for a byte without a token; -1: such a byte is left out
};

// The pre-tokeniser patterns known by name ("qwen2", "smollm", "gpt-2", "llama-bpe", …; GGUF's
// tokenizer.ggml.pre). Empty if the name is not known.
std::vector<std::string> split_patterns_by_name(std::string_view name);

// Immutable after create, so any number of threads may use one.
class Tokenizer {
 public:
  // bad_file if ids clash, a merge names no token or a pattern does not compile.
  static Result<Tokenizer> create(TokenizerSpec spec);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  struct EncodeOptions {
    bool parse_special = true;  // text such as <|im_end|> becomes its token; false: it is plain text
    bool add_special = true;    // bos/eos where the tokenizer asks for them
  };
  // Never fails: invalid UTF-8 is treated as Python's errors="replace" does (U+FFFD).
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const;
  std::vector<TokenId> encode(std::string_view text) const { return encode(text, EncodeOptions{}); }

  // Whole text; bytes that are not UTF-8 become U+FFFD exactly as Python's bytes.decode(errors="replace").
  // Ids outside the vocabulary give nothing.
  std::string decode(std::span<const TokenId> ids, bool skip_special) const;

  // The raw bytes a token stands for (an added token: its text). Empty outside the vocabulary.
  std::string_view token_bytes(TokenId id) const;
  bool is_special(TokenId id) const;
  // The id of an added token or of a vocabulary entry (in byte-level characters); -1 if there is none.
  TokenId id_of(std::string_view token_text) const;
  int vocab_size() const;  // largest id + 1
  TokenId bos() const;
  TokenId eos() const;

  struct Impl;  // the source file's own

 private:
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace snug::text
