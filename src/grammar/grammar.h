// What an answer may look like: a regular expression, a JSON schema, any JSON object, or a composition of
// those, compiled once and asked at each step which tokens may come next.
//
// Works on bytes: a token is allowed if its bytes continue some text of the language, also where it ends
// inside a character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace snug::grammar {

// The bytes of every token, arranged for walking. Immutable.
class Vocabulary;
// `bytes`[id] is a token's text; an empty one (special tokens, the padded tail) is never allowed.
std::shared_ptr<const Vocabulary> make_vocabulary(std::vector<std::string> bytes);

// Masks that were worked out are kept with the vocabulary, those used last up to this many bytes together,
// however many grammars there are.
inline constexpr std::size_t kMaskCacheBytes = 64u << 20;

// A compiled language: immutable, shared by any number of matchers on any threads.
class Grammar;
using GrammarPtr = std::shared_ptr<const Grammar>;

// All are usage errors that name what is wrong and what is supported, for input that is malformed,
// unsupported or larger than the limits.
Result<GrammarPtr> compile_regex(std::string_view pattern);         // the whole text matches it
Result<GrammarPtr> compile_json_schema(const OrderedJson& schema);  // a JSON text that is valid under it
Result<GrammarPtr> compile_json_object();                           // any JSON object
Result<GrammarPtr> compile_choice(const std::vector<std::string>& texts);

struct ToolSignature {
  std::string name;
  OrderedJson parameters;  // JSON schema of the arguments, an object's; null: any object
};
// A call of one of the tools as Qwen2.5 writes it (Hermes style):
//   <tool_call>\n{"name": "NAME", "arguments": {…}}\n</tool_call>
// If `parallel` one or more, each on the line after the one before.
Result<GrammarPtr> compile_tool_calls(const std::vector<ToolSignature>& tools, bool parallel);

// Where one answer stands in its language. Used from one thread.
class TokenMatcher {
 public:
  TokenMatcher(GrammarPtr grammar, std::shared_ptr<const Vocabulary> vocabulary);
  TokenMatcher(TokenMatcher&&) noexcept;
  TokenMatcher& operator=(TokenMatcher&&) noexcept;
  ~TokenMatcher();

  // One bit for each token id, bit id % 64 of word id / 64; valid until the next accept().
  std::span<const std::uint64_t> allowed();
  bool allows(std::int32_t token);
  // The next token was `token`, one that is allowed.
  void accept(std::int32_t token);
  // The text so far is whole: the answer may end here.
  bool may_end() const;
  // Nothing can follow it.
  bool must_end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace snug::grammar
