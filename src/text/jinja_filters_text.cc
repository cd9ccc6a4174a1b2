// Filters on text and numbers.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace snug::text::jinja {
namespace {

template <std::string (*kConvert)(std::string_view)>
Value convert_filter(const Value& value, const Args&, Budget& budget) {
  return make_text(kConvert(to_text(value, budget)), budget);
}

Value string_filter(const Value& value, const Args&, Budget& budget) {
  return value.text() != nullptr ? value : make_text(to_text(value, budget), budget);
}

Value trim_filter(const Value& value, const Args& args, Budget& budget) {
  const Value* characters = args.find(0, "chars");
  std::optional<std::string> set;
  if (characters != nullptr && !characters->is_none()) set = text_argument(args, 0, "chars", "", budget);
  const std::string text = to_text(value, budget);
  return make_text(std::string(strip(text, true, true, set)), budget);
}

Value replace_filter(const Value& value, const Args& args, Budget& budget) {
  return replace_text(to_text(value, budget), args, budget);
}

Value escape_filter(const Value& value, const Args&, Budget& budget) {
  std::string out;
  for (const char c : to_text(value, budget)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
    budget.check_text(static_cast<std::int64_t>(out.size()));
  }
  return make_text(std::move(out), budget);
}

Value indent_filter(const Value& value, const Args& args, Budget& budget) {
  const Value* width = args.find(0, "width");
  std::string margin(4, ' ');
  if (width != nullptr && width->integer()) {
    budget.check_text(*width->integer());
    margin.assign(static_cast<std::size_t>(std::max<std::int64_t>(*width->integer(), 0)), ' ');
  } else {
    margin = text_argument(args, 0, "width", margin, budget);
  }
  const bool first = bool_argument(args, 1, "first", false), blank = bool_argument(args, 2, "blank", false);
  const std::string text = to_text(value, budget) + "\n";
  std::string out;
  bool at_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!at_first) out += "\n";
    if (at_first ? first : (blank || !line.empty())) out += margin;
    out += line;
    at_first = false;
    budget.check_text(static_cast<std::int64_t>(out.size()));
  }
  return make_text(std::move(out), budget);
}

Value center_filter(const Value& value, const Args& args, Budget& budget) {
  return pad_text(to_text(value, budget), integer_argument(args, 0, "width", 80), 'c', " ", budget);
}

Value format_filter(const Value& value, const Args& args, Budget& budget) {
  return make_text(percent_format(to_text(value, budget), args.positional, budget), budget);
}

Value wordcount_filter(const Value& value, const Args&, Budget& budget) {
  const std::string text = to_text(value, budget);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    const bool word = is_letter(c.value) || is_digit(c.value) || c.value == '_';
    if (word && !inside) ++words;
    inside = word;
    i += static_cast<std::size_t>(c.size);
  }
  return {words};
}

// A whole text as a number, spaces around it allowed.
std::optional<double> parse_double(std::string_view text) {
  const std::string trimmed(strip(text, true, true, std::nullopt));
  if (trimmed.empty() || trimmed.find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(trimmed.c_str(), &end);
  if (end != trimmed.c_str() + trimmed.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  const std::string trimmed(strip(text, true, true, std::nullopt));
  if (trimmed.empty() || is_space(static_cast<unsigned char>(trimmed[0]))) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(trimmed.c_str(), &end, base);
  if (end != trimmed.c_str() + trimmed.size()) return std::nullopt;
  if (errno == ERANGE) fail("integer overflow");
  return value;
}

std::optional<std::int64_t> truncate(double value) {
  if (!(std::fabs(value) < 9.2e18)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Value int_filter(const Value& value, const Args& args, Budget&) {
  refuse_undefined(value);
  const Value* given = args.find(0, "default");
  const Value otherwise = given != nullptr ? *given : Value{std::int64_t{0}};
  const std::int64_t base = integer_argument(args, 1, "base", 10);
  if (base != 0 && (base < 2 || base > 36)) fail("int: base must be 0 or 2 to 36");
  std::optional<std::int64_t> result = value.integer();
  if (const auto* d = value.get<double>()) result = truncate(*d);
  if (const std::string* text = value.text()) {
    result = parse_integer(*text, static_cast<int>(base));
    if (!result) {
      if (const auto d = parse_double(*text)) result = truncate(*d);
    }
  }
  return result ? Value{*result} : otherwise;
}

Value float_filter(const Value& value, const Args& args, Budget&) {
  refuse_undefined(value);
  const Value* otherwise = args.find(0, "default");
  std::optional<double> result = value.number();
  if (const std::string* text = value.text()) result = parse_double(*text);
  if (result) return {*result};
  return otherwise != nullptr ? *otherwise : Value{0.0};
}

Value abs_filter(const Value& value, const Args&, Budget&) {
  refuse_undefined(value);
  if (const auto i = value.integer()) return *i < 0 ? negate(value) : Value{*i};
  if (const auto d = value.number()) return {std::fabs(*d)};
  fail(std::string("bad operand type for abs(): '") + type_name(value) + "'");
}

Value round_filter(const Value& value, const Args& args, Budget& budget) {
  refuse_undefined(value);
  const std::int64_t precision = integer_argument(args, 0, "precision", 0);
  const std::string method = text_argument(args, 1, "method", "common", budget);
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  if (precision < -300 || precision > 300) fail("round: precision out of range");
  const auto number = value.number();
  if (!number) fail(std::string("type ") + type_name(value) + " doesn't define __round__ method");
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    return {(method == "ceil" ? std::ceil(*number * scale) : std::floor(*number * scale)) / scale};
  }
  if (value.integer() && precision >= 0) return {*value.integer()};
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    const double rounded = std::nearbyint(*number / scale) * scale;
    const auto whole = truncate(rounded);
    return value.integer() && whole ? Value{*whole} : Value{rounded};
  }
  // Printing rounds the exact value, halves to even, as Python does.
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), *number);
  return {std::strtod(buffer, nullptr)};
}

// % flags width .precision, each at most once and in this order: what snprintf may be given.
bool well_formed(std::string_view spec) {
  std::size_t i = std::min(spec.find_first_not_of("-+ 0#", 1), spec.size());
  i = std::min(spec.find_first_not_of("0123456789", i), spec.size());
  if (i < spec.size() && spec[i] == '.')
    i = std::min(spec.find_first_not_of("0123456789", i + 1), spec.size());
  return i == spec.size();
}

constexpr Builtin kTextFilters[] = {
    {"upper", convert_filter<to_upper>},
    {"lower", convert_filter<to_lower>},
    {"capitalize", convert_filter<capitalize>},
    {"title", convert_filter<title_filter>},
    {"string", string_filter},
    {"safe", string_filter},
    {"trim", trim_filter, "chars"},
    {"replace", replace_filter, "old new count"},
    {"escape", escape_filter},
    {"e", escape_filter},
    {"forceescape", escape_filter},
    {"indent", indent_filter, "width first blank"},
    {"center", center_filter, "width"},
    {"format", format_filter, "*"},
    {"wordcount", wordcount_filter},
    {"int", int_filter, "default base"},
    {"float", float_filter, "default"},
    {"abs", abs_filter},
    {"round", round_filter, "precision method"},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys"},
};

}  // namespace

std::span<const Builtin> text_filters() {
  return kTextFilters;
}

Value replace_text(const std::string& text, const Args& args, Budget& budget) {
  const Value* old_value = args.find(0, "old");
  const Value* new_value = args.find(1, "new");
  if (old_value == nullptr || new_value == nullptr) fail("replace expects an old and a new string");
  const std::string old = text_argument(args, 0, "old", "", budget),
                    fresh = text_argument(args, 1, "new", "", budget);
  const Value* count = args.find(2, "count");
  std::int64_t left = count == nullptr || count->is_none() ? -1 : integer_argument(args, 2, "count", -1);
  budget.step(static_cast<std::int64_t>(text.size()) / 64);
  std::string out;
  std::size_t at = 0;
  for (; left != 0; --left) {
    if (old.empty()) {  // between all characters
      out += fresh;
      if (at == text.size()) break;
      const auto size = static_cast<std::size_t>(decode_at(text, at).size);
      out.append(text, at, size);
      at += size;
    } else {
      const std::size_t found = text.find(old, at);
      if (found == std::string::npos) break;
      out.append(text, at, found - at);
      out += fresh;
      at = found + old.size();
    }
    budget.check_text(static_cast<std::int64_t>(out.size()));
  }
  out.append(text, at, std::string::npos);
  return make_text(std::move(out), budget);
}

Value pad_text(const std::string& text, std::int64_t width, char side, const std::string& fill,
               Budget& budget) {
  if (length(fill) != 1) fail("the fill character must be exactly one character long");
  budget.check_text(width);
  const std::int64_t missing = std::max<std::int64_t>(width - length(text), 0);
  budget.check_text(missing * static_cast<std::int64_t>(fill.size()));
  std::int64_t left = side == 'l' ? missing : 0;
  if (side == 'c') left = missing / 2 + (missing & width & 1);  // Python's choice for odd widths
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return make_text(std::move(out), budget);
}

Value join_values(const std::vector<Value>& items, std::string_view separator, bool strict, Budget& budget) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (strict && items[i].text() == nullptr) {
      fail("sequence item " + std::to_string(i) + ": expected str instance, " + type_name(items[i]) +
           " found");
    }
    if (i > 0) out += separator;
    out += to_text(items[i], budget);
    budget.check_text(static_cast<std::int64_t>(out.size()));
    budget.step();
  }
  return make_text(std::move(out), budget);
}

std::string percent_format(std::string_view format, const std::vector<Value>& values, Budget& budget) {
  std::string out;
  std::size_t used = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    std::string spec = "%";
    std::string digits;
    for (++i;
         i < format.size() && std::string_view("-+ 0#.123456789").find(format[i]) != std::string_view::npos;
         ++i) {
      spec += format[i];
      if (format[i] >= '0' && format[i] <= '9') digits += format[i];
    }
    if (i >= format.size()) fail("incomplete format");
    const char kind = format[i];
    if (kind == '%') {
      out += '%';
      continue;
    }
    if (!well_formed(spec)) fail("format: '" + spec + "' is not a format");
    if (spec.size() > 12 || digits.size() > 6) fail("format: width or precision is too large");
    if (used >= values.size()) fail("not enough arguments for format string");
    const Value& value = values[used++];
    std::string text;
    std::size_t size = 0;
    const auto number = value.number();
    const auto print = [&](auto argument, const char* length_and_kind) {
      const std::string full = spec + length_and_kind;
      size = static_cast<std::size_t>(std::max(std::snprintf(nullptr, 0, full.c_str(), argument), 0));
      budget.check_text(static_cast<std::int64_t>(size));
      text.resize(size + 1);
      std::snprintf(text.data(), text.size(), full.c_str(), argument);
      text.resize(size);
    };
    const char letter[2] = {kind, '\0'};
    if (kind == 's' || kind == 'r') {
      text = kind == 's' ? to_text(value, budget) : repr(value, budget);
      const bool left = spec.find('-') != std::string::npos;
      const std::size_t dot = spec.find('.');
      if (dot != std::string::npos) text.resize(offset_of(text, std::atoll(spec.c_str() + dot + 1)));
      const std::size_t width = spec.find_first_of("123456789");
      if (width != std::string::npos && width < dot) {
        text = *pad_text(text, std::atoll(spec.c_str() + width), left ? 'r' : 'l', " ", budget).text();
      }
    } else if (std::string_view("dixXo").find(kind) != std::string_view::npos) {
      if (!number) fail(std::string("%") + kind + " format: a number is required, not " + type_name(value));
      const auto whole = value.integer() ? value.integer() : truncate(*number);
      if (!whole) fail("integer overflow");
      print(static_cast<long long>(*whole), (std::string("ll") + kind).c_str());
    } else if (std::string_view("fFeEgG").find(kind) != std::string_view::npos) {
      if (!number) fail(std::string("must be real number, not ") + type_name(value));
      print(*number, letter);
    } else {
      fail(std::string("unsupported format character '") + kind + "'");
    }
    out += text;
    budget.check_text(static_cast<std::int64_t>(out.size()));
  }
  if (used < values.size()) fail("not all arguments converted during string formatting");
  return out;
}

}  // namespace snug::text::jinja
