#include "text/pretokenizer.h"

#include <fmt/format.h>

#include <optional>

#include "text/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace snug::text {
namespace {

constexpr std::size_t kMaxPatternSize = 65536;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;

// The files are written for Oniguruma. Its \s is Unicode's White_Space, while PCRE2's has U+180E as well, so
// that is spelt out. What means something else in PCRE2 is refused: classes in classes, && in a class, \h (a
// hex digit).
std::optional<std::string> to_pcre2(std::string_view pattern) {
  constexpr std::string_view kSpace = "\\p{Z}\\x{09}-\\x{0D}\\x{85}";
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 'h' || next == 'H') return std::nullopt;
      if (next == 's') {
        out += in_class ? std::string(kSpace) : fmt::format("[{}]", kSpace);
      } else if (next == 'S' && !in_class) {
        out += fmt::format("[^{}]", kSpace);
      } else {
        out += '\\';
        out += next;
      }
      continue;
    }
    if (in_class && (pattern[i] == '[' || pattern.substr(i, 2) == "&&")) return std::nullopt;
    if (pattern[i] == '[') in_class = true;
    if (pattern[i] == ']') in_class = false;
    out += pattern[i];
  }
  return out;
}

}  // namespace

struct Pretokenizer::Pattern {
  Code code;

  // The first match at or after `from`: true, with its bounds. False if there is none, or if matching gave
  // up.
  bool find(std::string_view text, std::size_t from, pcre2_match_data* data, std::size_t& begin,
            std::size_t& end) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its stack on the heap
      found = pcre2_match(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                          nullptr);
    }
    if (found < 0) return false;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
    begin = bounds[0];
    end = bounds[1];
    return begin >= from && end >= begin;  // \K in a pattern can break this
  }

  static void split(std::span<const Pattern> patterns, std::span<const MatchData> data, std::string_view text,
                    std::vector<std::string_view>& pieces) {
    if (text.empty()) return;
    if (patterns.empty()) {
      pieces.push_back(text);
      return;
    }
    const auto deeper = [&](std::string_view piece) {
      split(patterns.subspan(1), data.subspan(1), piece, pieces);
    };
    std::size_t done = 0, from = 0, begin = 0, end = 0;
    while (from < text.size() && patterns[0].find(text, from, data[0].get(), begin, end)) {
      if (begin == end) {  // an empty match cuts nothing: look further on
        if (begin >= text.size()) break;
        from = begin + utf8_step(text.substr(begin)).size;
        continue;
      }
      deeper(text.substr(done, begin - done));
      deeper(text.substr(begin, end - begin));
      done = from = end;
    }
    deeper(text.substr(done));
  }
};

Pretokenizer::Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::create(std::span<const std::string> patterns, std::string_view name) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_max_pattern_length(context.get(), kMaxPatternSize);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  Pretokenizer result;
  for (const std::string& original : patterns) {
    const auto bad = [&](std::string_view why) {
      return Error{ErrorCode::bad_file,
                   fmt::format("{}: pre_tokenizer: the pattern {} cannot be used: {}", name,
                               original.substr(0, 200), why),
                   "correct the pattern, or fetch the file again"};
    };
    if (!utf8_is_valid(original)) return bad("it is not UTF-8");
    const std::optional<std::string> pattern = to_pcre2(original);
    if (!pattern) return bad("classes inside classes, && in a class and \\h are not supported");
    int code = 0;
    PCRE2_SIZE offset = 0;
    Code compiled(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern->data()), pattern->size(),
                      PCRE2_UTF | PCRE2_MULTILINE | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C,
                      &code, &offset, context.get()));
    if (!compiled) {
      char message[256] = {};
      pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
      return bad(message);
    }
    // Without the just-in-time compiler (not built in, or no executable memory) matching is slower, not
    // wrong.
    pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);
    result.patterns_.push_back(Pattern{std::move(compiled)});
  }
  return result;
}

void Pretokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  std::vector<MatchData> data;
  for (std::size_t i = 0; i < patterns_.size(); ++i) data.emplace_back(pcre2_match_data_create(1, nullptr));
  Pattern::split(patterns_, data, text, pieces);
}

std::string quote_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       static_cast<unsigned char>(c) >= 0x80;
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace snug::text
