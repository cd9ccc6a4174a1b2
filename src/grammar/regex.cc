#include "grammar/regex.h"

#include <fmt/format.h>

#include <optional>

#include "grammar/limits.h"
#include "grammar/utf8.h"

namespace snug::grammar {
namespace {

CharSet digits() {
  return CharSet::of('0', '9');
}
CharSet word() {
  return digits().add('a', 'z').add('A', 'Z').add('_', '_');
}
CharSet space() {
  return CharSet::of('\t', '\r').add(' ', ' ');
}

class Parser {
 public:
  Parser(Expressions& expressions, std::u32string pattern, TextForm form)
      : expressions_(expressions), text_(std::move(pattern)), form_(form) {}

  Result<ExprId> parse(Extent extent) {
    const ExprId anything = extent == Extent::search
                                ? expressions_.repeat(one_of(CharSet::all()), 0, kUnbounded)
                                : expressions_.empty();
    std::vector<ExprId> alternatives;
    do {
      const bool from_start = take('^');
      SNUG_ASSIGN(const ExprId body, sequence());
      const bool to_end = take('$');
      alternatives.push_back(expressions_.concat(
          {from_start ? expressions_.empty() : anything, body, to_end ? expressions_.empty() : anything}));
    } while (take('|'));
    if (!done()) return unexpected();
    return expressions_.alternatives(std::move(alternatives));
  }

 private:
  bool done() const { return at_ == text_.size(); }
  char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : U'\0';
  }
  bool starts_with(std::u32string_view prefix) const {
    return std::u32string_view(text_).substr(at_).starts_with(prefix);
  }
  bool take(char32_t c) {
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::u32string_view prefix) {
    if (!starts_with(prefix)) return false;
    at_ += prefix.size();
    return true;
  }

  Error wrong(std::string what, std::string remedy) const {
    return {ErrorCode::usage, fmt::format("{} at character {}", what, at_ + 1), std::move(remedy)};
  }
  Error unsupported(std::string_view what) const {
    return wrong(fmt::format("{} not supported", what),
                 "use classes, groups, alternatives and the quantifiers * + ? {m,n}");
  }
  Error unexpected() const {
    switch (peek()) {
      case ')':
        return wrong("a ) without its (", "write \\) for the character");
      case '*':
      case '+':
      case '?':
      case '{':
        return wrong("a quantifier with nothing before it", "write it with a backslash for the character");
      default:
        return wrong("an anchor ^ or $ that is not at an end of the pattern or of its outermost alternatives",
                     "move it there, or write it with a backslash for the character");
    }
  }

  ExprId one_of(const CharSet& set) { return written_characters(expressions_, set, form_); }

  Result<ExprId> alternatives() {
    std::vector<ExprId> parts;
    do {
      SNUG_ASSIGN(const ExprId part, sequence());
      parts.push_back(part);
    } while (take('|'));
    return expressions_.alternatives(std::move(parts));
  }

  Result<ExprId> sequence() {
    std::vector<ExprId> parts;
    while (!done() && peek() != '|' && peek() != ')' && peek() != '^' && peek() != '$') {
      SNUG_ASSIGN(const ExprId part, atom());
      SNUG_ASSIGN(const ExprId repeated, quantified(part));
      parts.push_back(repeated);
    }
    return expressions_.concat(std::move(parts));
  }

  Result<ExprId> atom() {
    switch (peek()) {
      case '(':
        return group();
      case '[': {
        SNUG_ASSIGN(const CharSet set, bracket());
        return one_of(set);
      }
      case '.':
        ++at_;
        return one_of(CharSet::of('\n', '\n').negated());
      case '*':
      case '+':
      case '?':
        return unexpected();
      case '{':
        if (counts()) return unexpected();
        break;
      case '\\': {
        SNUG_ASSIGN(const CharSet set, escape(false));
        return one_of(set);
      }
      default:
        break;
    }
    const char32_t c = text_[at_++];
    return one_of(CharSet::of(c, c));
  }

  Result<ExprId> group() {
    if (starts_with(U"(?=") || starts_with(U"(?!")) return unsupported("look-ahead (?= or (?! is");
    if (starts_with(U"(?<=") || starts_with(U"(?<!")) return unsupported("look-behind (?<= or (?<! is");
    if (starts_with(U"(?>")) return unsupported("the atomic group (?> is");
    if (starts_with(U"(?(")) return unsupported("the condition (?( is");
    if (starts_with(U"(?P=")) return unsupported("the back-reference (?P= is");
    if (depth_ == kMaxGroupDepth) {
      return wrong(fmt::format("more than {} groups inside one another", kMaxGroupDepth),
                   "nest fewer groups");
    }
    if (take(U"(?<") || take(U"(?P<")) {
      while (!done() && peek() != '>') ++at_;
      if (!take('>')) return wrong("a group's name without its >", "write (?<name>…)");
    } else if (!take(U"(?:")) {
      if (starts_with(U"(?")) return unsupported(fmt::format("the group (?{} is", utf8_of(peek(2))));
      ++at_;
    }
    ++depth_;
    SNUG_ASSIGN(const ExprId inside, alternatives());
    --depth_;
    if (take(')')) return inside;
    if (done()) return wrong("a ( without its )", "close the group, or write \\( for the character");
    return unexpected();
  }

  struct Counts {
    std::uint64_t min = 0, max = 0;
    std::size_t size = 0;  // characters
  };
  // {m}, {m,} or {m,n} here. Other braces stand for themselves.
  std::optional<Counts> counts() const {
    std::size_t i = at_;
    const auto number = [&](std::uint64_t& out) {
      const std::size_t begin = i;
      for (out = 0; i < text_.size() && text_[i] >= '0' && text_[i] <= '9'; ++i) {
        out = std::min<std::uint64_t>(out * 10 + (text_[i] - '0'), kUnbounded - 1);
      }
      return i > begin;
    };
    if (i >= text_.size() || text_[i++] != '{') return std::nullopt;
    Counts result;
    if (!number(result.min)) return std::nullopt;
    result.max = result.min;
    if (i < text_.size() && text_[i] == ',') {
      ++i;
      if (!number(result.max)) result.max = kUnbounded;
    }
    if (i >= text_.size() || text_[i++] != '}') return std::nullopt;
    result.size = i - at_;
    return result;
  }

  Result<ExprId> quantified(ExprId part) {
    std::uint32_t min = 0, max = kUnbounded;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (const auto given = counts()) {
      const std::uint64_t largest = given->max == kUnbounded ? given->min : std::max(given->min, given->max);
      if (largest > kMaxRepeat) {
        return wrong(fmt::format("a repeat count of {} is above the limit of {}", largest, kMaxRepeat),
                     "use a smaller count, or none");
      }
      if (given->max < given->min) {
        return wrong(fmt::format("{{{},{}}} counts down", given->min, given->max),
                     "write the smaller one first");
      }
      min = static_cast<std::uint32_t>(given->min);
      max = static_cast<std::uint32_t>(given->max);
      at_ += given->size;
    } else {
      return part;
    }
    take('?');  // lazy: which match is preferred, not what is matched
    if (peek() == '+' && !done()) return unsupported("a possessive quantifier is");
    if (!done() && (peek() == '*' || peek() == '?' || (peek() == '{' && counts()))) {
      return wrong("two quantifiers in a row", "put the first and what it repeats into a group");
    }
    return expressions_.repeat(part, min, max);
  }

  Result<CharSet> bracket() {
    ++at_;
    const bool negated = take('^');
    CharSet set;
    // A ] that comes first stands for itself, as in Python.
    for (bool first = true; first || peek() != ']'; first = false) {
      if (done()) return wrong("a [ without its ]", "close the class, or write \\[ for the character");
      if (starts_with(U"[:")) return unsupported("the class [:name:] is");
      SNUG_ASSIGN(const CharSet from, class_member());
      const bool range = peek() == '-' && at_ + 1 < text_.size() && peek(1) != ']';
      if (!range) {
        set.add(from);
        continue;
      }
      ++at_;
      SNUG_ASSIGN(const CharSet to, class_member());
      if (!single(from) || !single(to)) {
        return wrong("a range in a class with an end that is no single character",
                     "write \\- for the character");
      }
      const char32_t low = from.ranges()[0].first, high = to.ranges()[0].first;
      if (low > high) return wrong("a range in a class that runs backwards", "write the lower end first");
      set.add(low, high);
    }
    ++at_;
    return negated ? set.negated() : set;
  }
  static bool single(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }
  Result<CharSet> class_member() {
    if (done()) return wrong("a [ without its ]", "close the class, or write \\[ for the character");
    if (peek() == '\\') return escape(true);
    const char32_t c = text_[at_++];
    return CharSet::of(c, c);
  }

  Result<char32_t> hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t c = peek();
      const int digit = c >= '0' && c <= '9'   ? static_cast<int>(c - '0')
                        : c >= 'a' && c <= 'f' ? static_cast<int>(c - 'a' + 10)
                        : c >= 'A' && c <= 'F' ? static_cast<int>(c - 'A' + 10)
                                               : -1;
      if (digit < 0)
        return wrong(fmt::format("an escape that wants {} hexadecimal digits", digits), "write them");
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    return value;
  }

  Result<CharSet> escape(bool in_class) {
    ++at_;
    if (done()) return wrong("a backslash at the end", "write \\\\ for the character");
    const char32_t c = text_[at_++];
    const auto one = [](char32_t x) { return CharSet::of(x, x); };
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().negated();
      case 'w':
        return word();
      case 'W':
        return word().negated();
      case 's':
        return space();
      case 'S':
        return space().negated();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x': {
        SNUG_ASSIGN(const char32_t value, hex(2));
        return one(value);
      }
      case 'u':
        return unicode_escape();
      case '0':
        if (peek() < '0' || peek() > '9') return one('\0');
        break;
      case 'b':
        if (in_class) return one('\b');
        return unsupported("the word boundary \\b is");
      case 'B':
        return unsupported("the word boundary \\B is");
      case 'A':
      case 'z':
      case 'Z':
        return unsupported(fmt::format("the anchor \\{} is", static_cast<char>(c)));
      case 'p':
      case 'P':
        return unsupported(fmt::format("the Unicode property \\{} is", static_cast<char>(c)));
      case 'k':
        return unsupported("the back-reference \\k is");
      default:
        break;
    }
    if (c >= '0' && c <= '9')
      return unsupported(fmt::format("the back-reference \\{} is", static_cast<char>(c)));
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      return unsupported(fmt::format("the escape \\{} is", static_cast<char>(c)));
    }
    return one(c);
  }

  // \uXXXX, a pair of surrogates written so, or \u{X…}.
  Result<CharSet> unicode_escape() {
    char32_t value = 0;
    if (take('{')) {
      std::size_t digits = 0;
      while (!done() && peek(digits) != '}' && digits < 7) ++digits;
      SNUG_ASSIGN(value, hex(static_cast<int>(digits)));
      if (!take('}') || digits == 0) return wrong("\\u{ without its }", "write \\u{1F600}");
    } else {
      SNUG_ASSIGN(value, hex(4));
      if (value >= 0xD800 && value <= 0xDBFF && take(U"\\u")) {
        SNUG_ASSIGN(const char32_t low, hex(4));
        if (low >= 0xDC00 && low <= 0xDFFF) value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      return wrong("an escape that is no character", "write surrogates in pairs, high before low");
    }
    return CharSet::of(value, value);
  }

  Expressions& expressions_;
  std::u32string text_;
  TextForm form_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

ExprId written_characters(Expressions& expressions, const CharSet& set, TextForm form) {
  if (form == TextForm::plain) return expressions.characters(set);
  const CharSet special = CharSet::of(0, 0x1F).add('"', '"').add('\\', '\\');
  std::vector<ExprId> parts{expressions.characters(set.without(special))};
  for (const auto& range : special.ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      if (!set.contains(c)) continue;
      constexpr std::string_view kShort = "\b\t\n\f\r\"\\", kLetter = "btnfr\"\\";
      const auto i = kShort.find(static_cast<char>(c));
      parts.push_back(expressions.literal(i != kShort.npos
                                              ? std::string{'\\', kLetter[i]}
                                              : fmt::format("\\u{:04x}", static_cast<unsigned>(c))));
    }
  }
  return expressions.alternatives(std::move(parts));
}

Result<ExprId> parse_regex(Expressions& expressions, std::string_view pattern, TextForm form, Extent extent) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error{ErrorCode::usage,
                 fmt::format("the pattern has {} bytes, the limit is {}", pattern.size(), kMaxPatternBytes),
                 "use a shorter one"};
  }
  auto characters = utf8_characters(pattern);
  if (!characters) return Error{ErrorCode::usage, "the pattern is not valid UTF-8", "send it as UTF-8"};
  return Parser(expressions, std::move(*characters), form).parse(extent);
}

}  // namespace snug::grammar
