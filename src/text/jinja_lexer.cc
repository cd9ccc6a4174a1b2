#include "text/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

namespace snug::text::jinja {
namespace {

// Newlines become \n, and one at the very end is dropped.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_value(char c) {
  if (is_ascii_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    emit(Token::Type::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string message) const { throw Failure{std::move(message), line_}; }

  void emit(Token::Type type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  bool starts(std::string_view what) const { return std::string_view(source_).substr(at_).starts_with(what); }

  // Moves on, counting lines.
  void advance(std::size_t count) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(count), '\n'));
    at_ += count;
    if (count > 0) line_starting_ = source_[at_ - 1] == '\n';
  }

  void skip_space() {
    while (at_ < source_.size()) {
      const CodePoint c = decode_at(source_, at_);
      if (!is_space(c.value)) break;
      advance(static_cast<std::size_t>(c.size));
    }
  }

  // The text before a tag, less what the tag's sign or lstrip_blocks takes from its end.
  void emit_text(std::size_t end, char sign, bool variable) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = strip(text, false, true, std::nullopt);
    } else if (sign != '+' && !variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && strip(text.substr(line), true, false, std::nullopt).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) emit(Token::Type::data, std::string(text));
    advance(end - at_);
  }

  char sign_after(std::size_t delimiter) const {
    const char c = delimiter + 2 < source_.size() ? source_[delimiter + 2] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void text_and_tag() {
    std::size_t tag = source_.find('{', at_);
    while (tag != std::string::npos &&
           (tag + 1 >= source_.size() ||
            std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos)) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos) {
      emit(Token::Type::data, source_.substr(at_));
      advance(source_.size() - at_);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_after(tag);
    emit_text(tag, sign, kind == '{');
    advance(sign != '\0' ? 3 : 2);
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    emit(kind == '{' ? Token::Type::variable_begin : Token::Type::block_begin, "");
    inside(kind == '{');
  }

  void comment() {
    const std::size_t start = at_;
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) error("missing end of comment");
    const char sign = end > start ? source_[end - 1] : '\0';
    advance(end - at_);
    close_tag(sign);
  }

  // After the two characters that close a block or comment.
  void close_tag(char sign) {
    advance(2);
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && starts("\n")) {
      advance(1);
    }
  }

  // {% raw %} … {% endraw %}, standing after "{%" and its sign. False if the tag is another.
  bool raw() {
    const std::string_view source(source_);
    std::size_t i = skip_word(at_, "raw");
    if (i == std::string::npos) return false;
    const bool trims = source.substr(i).starts_with("-%}");
    if (!trims && !source.substr(i).starts_with("%}")) return false;
    advance(i - at_ + (trims ? 3 : 2));
    if (trims) skip_space();
    for (std::size_t tag = source.find("{%", at_); tag != std::string::npos;
         tag = source.find("{%", tag + 2)) {
      const char sign = sign_after(tag);
      i = skip_word(tag + (sign != '\0' ? 3 : 2), "endraw");
      if (i == std::string::npos) continue;
      const char closing = i < source.size() && (source[i] == '-' || source[i] == '+') ? source[i] : '\0';
      if (closing != '\0') ++i;
      if (!source.substr(i).starts_with("%}")) continue;
      emit_text(tag, sign, false);
      advance(i - at_);
      close_tag(closing);
      return true;
    }
    error("missing end of raw block");
  }

  // The offset after spaces, the word and spaces; npos if it is not there.
  std::size_t skip_word(std::size_t i, std::string_view word) const {
    const auto spaces = [&] {
      while (i < source_.size() && is_space(static_cast<unsigned char>(source_[i]))) ++i;
    };
    spaces();
    if (!std::string_view(source_).substr(std::min(i, source_.size())).starts_with(word))
      return std::string::npos;
    i += word.size();
    spaces();
    return i;
  }

  // The tokens of a tag up to its end.
  void inside(bool variable) {
    const int opened = line_;
    std::string brackets;  // closing brackets that are due
    for (;;) {
      skip_space();
      if (at_ >= source_.size()) {
        throw Failure{variable ? "'{{' is not closed" : "'{%' is not closed", opened};
      }
      if (brackets.empty() && tag_end(variable)) return;
      const char c = source_[at_];
      if (is_ascii_digit(c)) {
        number();
      } else if (c == '"' || c == '\'') {
        string(c);
      } else if (!name()) {
        op(brackets);
      }
    }
  }

  bool tag_end(bool variable) {
    const std::string_view closing = variable ? "}}" : "%}";
    char sign = source_[at_];
    if (sign != '-' && (variable || sign != '+')) sign = '\0';
    if (!std::string_view(source_).substr(at_ + (sign != '\0' ? 1 : 0)).starts_with(closing)) return false;
    emit(variable ? Token::Type::variable_end : Token::Type::block_end, "");
    if (sign != '\0') advance(1);
    if (variable && sign == '\0') {
      advance(2);
    } else {
      close_tag(sign);
    }
    return true;
  }

  bool name() {
    std::size_t i = at_;
    while (i < source_.size()) {
      const CodePoint c = decode_at(source_, i);
      if (c.value != '_' && !is_letter(c.value) && !(i > at_ && is_digit(c.value))) break;
      i += static_cast<std::size_t>(c.size);
    }
    if (i == at_) return false;
    emit(Token::Type::name, source_.substr(at_, i - at_));
    advance(i - at_);
    return true;
  }

  // Digits with single underscores between them, from i on, appended to `out`.
  std::size_t digits(std::size_t i, std::string& out) const {
    while (i < source_.size()) {
      if (is_ascii_digit(source_[i])) {
        out += source_[i];
      } else if (source_[i] != '_' || i + 1 >= source_.size() || !is_ascii_digit(source_[i + 1])) {
        break;
      }
      ++i;
    }
    return i;
  }

  void number() {
    const auto at = [&](std::size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    if (at(at_) == '0' && std::string_view("xXoObB").find(at(at_ + 1)) != std::string_view::npos &&
        at(at_ + 1)) {
      return based_number();
    }
    std::string text;
    std::size_t i = digits(at_, text);
    bool real = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // x.1.2 is two subscripts
    if (!after_dot && at(i) == '.' && is_ascii_digit(at(i + 1))) {
      text += '.';
      i = digits(i + 1, text);
      real = true;
    }
    const std::size_t sign = at(i + 1) == '+' || at(i + 1) == '-' ? 1 : 0;
    if (!after_dot && (at(i) == 'e' || at(i) == 'E') && is_ascii_digit(at(i + 1 + sign))) {
      text += 'e';
      if (sign == 1) text += at(i + 1);
      i = digits(i + 1 + sign, text);
      real = true;
    }
    emit(real ? Token::Type::real : Token::Type::integer, text);
    advance(i - at_);
  }

  void based_number() {
    const char kind = static_cast<char>(source_[at_ + 1] | 0x20);
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
    std::uint64_t value = 0;
    std::size_t i = at_ + 2;
    for (; i < source_.size(); ++i) {
      if (source_[i] == '_') continue;
      const int digit = hex_value(source_[i]);
      if (digit < 0 || digit >= base) break;
      if (value > (static_cast<std::uint64_t>(INT64_MAX) - 15) / 16) error("integer is too large");
      value = value * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(digit);
    }
    emit(Token::Type::integer, std::to_string(value));
    advance(i - at_);
  }

  void string(char quote) {
    std::string value;
    std::size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = escape(i + 1, value);
      } else {
        value += source_[i++];
      }
    }
    if (i >= source_.size()) error("string is not closed");
    emit(Token::Type::string, std::move(value));
    advance(i + 1 - at_);
  }

  // Python's escapes. `i` is after the backslash; returns the offset after the escape.
  std::size_t escape(std::size_t i, std::string& out) const {
    const char c = source_[i];
    static constexpr std::string_view kFrom = "abfnrtv\\'\"";
    static constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
    if (const auto p = kFrom.find(c); p != std::string_view::npos) {
      out += kTo[p];
      return i + 1;
    }
    if (c == '\n') return i + 1;  // a continued line
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      std::size_t end = i;
      for (; end < source_.size() && end < i + 3 && source_[end] >= '0' && source_[end] <= '7'; ++end) {
        value = value * 8 + static_cast<char32_t>(source_[end] - '0');
      }
      append_code_point(out, value);
      return end;
    }
    const int count = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (count > 0) {
      std::size_t end = i + 1;
      char32_t value = hex(end, count);
      const bool high = value >= 0xD800 && value < 0xDC00;
      if (high && end + 1 < source_.size() && source_[end] == '\\' && source_[end + 1] == 'u') {
        std::size_t after = end + 2;
        const char32_t low = hex(after, 4);
        if (low >= 0xDC00 && low < 0xE000) {
          value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
          end = after;
        }
      }
      append_code_point(out, value);
      return end;
    }
    out += '\\';  // not an escape: both characters stand
    return i;
  }

  char32_t hex(std::size_t& i, int count) const {
    char32_t value = 0;
    for (int n = 0; n < count; ++n, ++i) {
      const int digit = i < source_.size() ? hex_value(source_[i]) : -1;
      if (digit < 0) error("truncated escape in a string");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }

  void op(std::string& brackets) {
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (starts(two)) {
        emit(Token::Type::op, std::string(two));
        advance(2);
        return;
      }
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
      error(std::string("unexpected character '") +
            source_.substr(at_, static_cast<std::size_t>(decode_at(source_, at_).size)) + "'");
    }
    if (c == '(') brackets += ')';
    if (c == '[') brackets += ']';
    if (c == '{') brackets += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty()) error(std::string("unexpected '") + c + "'");
      if (brackets.back() != c)
        error(std::string("unexpected '") + c + "', expected '" + brackets.back() + "'");
      brackets.pop_back();
    }
    emit(Token::Type::op, std::string(1, c));
    advance(1);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag took the newline after it
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(normalized(source)).run();
}

}  // namespace snug::text::jinja
