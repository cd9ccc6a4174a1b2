// Methods of strings, dicts, lists and loops.
#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace snug::text::jinja {
namespace {

const std::string& self_text(const Value& value) {
  return *value.text();
}

// What the optional argument names; Python takes None as not given.
std::optional<std::string> optional_text(const Args& args, std::size_t position, std::string_view name) {
  const Value* value = args.find(position, name);
  if (value == nullptr || value->is_none()) return std::nullopt;
  if (value->text() == nullptr) fail(std::string(name) + " must be str or None, not " + type_name(*value));
  return *value->text();
}

const std::string& required_text(const Args& args, std::size_t position, std::string_view name) {
  const Value* value = args.find(position, name);
  if (value == nullptr) fail("missing argument '" + std::string(name) + "'");
  if (value->text() == nullptr) fail("expected str, got " + std::string(type_name(*value)));
  return *value->text();
}

template <bool kLeft, bool kRight>
Value strip_method(const Value& self, const Args& args, Budget& budget) {
  const auto characters = optional_text(args, 0, "chars");
  budget.step(static_cast<std::int64_t>(self_text(self).size()) / 64);
  return make_text(std::string(strip(self_text(self), kLeft, kRight, characters)), budget);
}

template <std::string (*kConvert)(std::string_view)>
Value convert_method(const Value& self, const Args&, Budget& budget) {
  budget.step(static_cast<std::int64_t>(self_text(self).size()) / 64);
  return make_text(kConvert(self_text(self)), budget);
}

// Words between white space. With a limit >= 0 only that many cuts are made, from the left or the right.
std::vector<std::string_view> split_space(std::string_view text, std::int64_t limit, bool from_right) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    const bool space = is_space(c.value);
    if (space && inside) words.push_back(text.substr(begin, i - begin));
    if (!space && !inside) begin = i;
    inside = !space;
    i += static_cast<std::size_t>(c.size);
  }
  if (inside) words.push_back(text.substr(begin));
  if (limit < 0 || words.size() <= static_cast<std::size_t>(limit)) return words;
  const auto cuts = static_cast<std::size_t>(limit);
  const char* const end = text.data() + text.size();
  if (!from_right) {
    const char* rest = words[cuts].data();
    words.resize(cuts);
    words.emplace_back(rest, static_cast<std::size_t>(end - rest));
    return words;
  }
  const std::size_t last = words.size() - cuts - 1;  // the last word of the part that stays whole
  const char* part_end = words[last].data() + words[last].size();
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(last));
  words[0] = std::string_view(text.data(), static_cast<std::size_t>(part_end - text.data()));
  return words;
}

std::vector<std::string_view> split_by(std::string_view text, std::string_view separator, std::int64_t limit,
                                       bool from_right) {
  std::vector<std::string_view> pieces;
  while (limit != 0) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view before = text.substr(0, at), after = text.substr(at + separator.size());
    pieces.push_back(from_right ? after : before);
    text = from_right ? before : after;
    --limit;
  }
  pieces.push_back(text);
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

Value list_of(const std::vector<std::string_view>& pieces, Budget& budget) {
  std::vector<Value> items;
  for (const std::string_view piece : pieces) items.push_back(make_text(std::string(piece), budget));
  return make_list(std::move(items), budget);
}

template <bool kFromRight>
Value split_method(const Value& self, const Args& args, Budget& budget) {
  const std::string& text = self_text(self);
  const auto separator = optional_text(args, 0, "sep");
  const std::int64_t limit = integer_argument(args, 1, "maxsplit", -1);
  budget.step(static_cast<std::int64_t>(text.size()) / 64);
  if (!separator) return list_of(split_space(text, limit, kFromRight), budget);
  if (separator->empty()) fail("empty separator");
  return list_of(split_by(text, *separator, limit, kFromRight), budget);
}

Value splitlines_method(const Value& self, const Args& args, Budget& budget) {
  return list_of(split_lines(self_text(self), bool_argument(args, 0, "keepends", false)), budget);
}

template <bool kFromRight>
Value partition_method(const Value& self, const Args& args, Budget& budget) {
  const std::string& text = self_text(self);
  const std::string& separator = required_text(args, 0, "sep");
  if (separator.empty()) fail("empty separator");
  const std::size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  std::string before = text, middle, after;
  if (at != std::string::npos) {
    before = text.substr(0, at);
    middle = separator;
    after = text.substr(at + separator.size());
  } else if (kFromRight) {
    std::swap(before, after);
  }
  return make_tuple({make_text(before, budget), make_text(middle, budget), make_text(after, budget)}, budget);
}

template <bool kStart>
Value affix_method(const Value& self, const Args& args, Budget&) {
  const Value* wanted = args.find(0, "prefix");
  if (wanted == nullptr) fail("missing argument 'prefix'");
  const std::string& text = self_text(self);
  const auto matches = [&](const Value& value) {
    if (value.text() == nullptr) fail(std::string("expected str or a tuple of str, not ") + type_name(value));
    return kStart ? text.starts_with(*value.text()) : text.ends_with(*value.text());
  };
  const List* several = wanted->list();
  if (several == nullptr || !several->tuple) return {matches(*wanted)};
  return {std::any_of(several->items.begin(), several->items.end(), matches)};
}

template <bool kStart>
Value remove_affix_method(const Value& self, const Args& args, Budget& budget) {
  const std::string& text = self_text(self);
  const std::string& affix = required_text(args, 0, "prefix");
  if (kStart && text.starts_with(affix)) return make_text(text.substr(affix.size()), budget);
  if (!kStart && text.ends_with(affix)) return make_text(text.substr(0, text.size() - affix.size()), budget);
  return self;
}

template <bool kFromRight, bool kMust>
Value find_method(const Value& self, const Args& args, Budget& budget) {
  const std::string& text = self_text(self);
  const std::string& wanted = required_text(args, 0, "sub");
  budget.step(static_cast<std::int64_t>(text.size()) / 64);
  const Value start = args.positional.size() > 1 ? args.positional[1] : Value{None{}};
  const Value end = args.positional.size() > 2 ? args.positional[2] : Value{None{}};
  const Value window = slice(self, start, end, {None{}}, budget);
  const std::string& searched = *window.text();
  const std::size_t at = kFromRight ? searched.rfind(wanted) : searched.find(wanted);
  if (at == std::string::npos) {
    if (kMust) fail("substring not found");
    return {std::int64_t{-1}};
  }
  const std::int64_t size = length(text);
  std::int64_t first = start.integer().value_or(0);
  if (first < 0) first = std::max<std::int64_t>(first + size, 0);
  return {first + length(std::string_view(searched).substr(0, at))};
}

Value count_method(const Value& self, const Args& args, Budget& budget) {
  const std::string& text = self_text(self);
  const std::string& wanted = required_text(args, 0, "sub");
  budget.step(static_cast<std::int64_t>(text.size()) / 64);
  if (wanted.empty()) return {length(text) + 1};
  std::int64_t count = 0;
  for (auto at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + wanted.size()))
    ++count;
  return {count};
}

Value replace_method(const Value& self, const Args& args, Budget& budget) {
  return replace_text(self_text(self), args, budget);
}

Value join_method(const Value& self, const Args& args, Budget& budget) {
  const Value* items = args.find(0, "iterable");
  if (items == nullptr) fail("missing argument 'iterable'");
  return join_values(iterate(*items, budget)->items, self_text(self), true, budget);
}

template <char kSide>
Value pad_method(const Value& self, const Args& args, Budget& budget) {
  return pad_text(self_text(self), integer_argument(args, 0, "width", 0), kSide,
                  text_argument(args, 1, "fillchar", " ", budget), budget);
}

Value zfill_method(const Value& self, const Args& args, Budget& budget) {
  const std::string& text = self_text(self);
  const std::int64_t width = integer_argument(args, 0, "width", 0);
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  const Value padded = pad_text(text.substr(sign ? 1 : 0), width - (sign ? 1 : 0), 'l', "0", budget);
  return make_text((sign ? text.substr(0, 1) : "") + *padded.text(), budget);
}

template <bool (*kIs)(char32_t)>
Value all_method(const Value& self, const Args&, Budget& budget) {
  const std::string& text = self_text(self);
  budget.step(static_cast<std::int64_t>(text.size()) / 64);
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    if (!kIs(c.value)) return {false};
    i += static_cast<std::size_t>(c.size);
  }
  return {!text.empty()};
}

bool is_alphanumeric(char32_t c) {
  return is_letter(c) || is_digit(c);
}

template <std::string (*kConvert)(std::string_view), std::string (*kOther)(std::string_view)>
Value is_case_method(const Value& self, const Args&, Budget&) {
  const std::string& text = self_text(self);
  return {kConvert(text) == text && kOther(text) != text};
}

// str.format with {} {0} {name}; nothing inside the braces but that.
Value format_method(const Value& self, const Args& args, Budget& budget) {
  const std::string& text = self_text(self);
  std::string out;
  std::size_t automatic = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
      out += c;
      ++i;
    } else if (c == '{') {
      const std::size_t end = text.find('}', i);
      if (end == std::string::npos) fail("expected '}' before end of string");
      const std::string field = text.substr(i + 1, end - i - 1);
      const bool numbered = !field.empty() && field.find_first_not_of("0123456789") == std::string::npos;
      std::size_t position = args.positional.size();
      if (field.empty()) position = automatic++;
      if (numbered && field.size() < 6) position = std::stoul(field);
      const Value* value = args.find(field.empty() || numbered ? position : args.positional.size(), field);
      if (value == nullptr)
        fail("format: no argument for '{" + field + "}' (format specifications are not supported)");
      out += to_text(*value, budget);
      i = end;
    } else if (c == '}') {
      fail("Single '}' encountered in format string");
    } else {
      out += c;
    }
    budget.check_text(static_cast<std::int64_t>(out.size()));
  }
  return make_text(std::move(out), budget);
}

constexpr Builtin kTextMethods[] = {
    {"strip", strip_method<true, true>, "chars"},
    {"lstrip", strip_method<true, false>, "chars"},
    {"rstrip", strip_method<false, true>, "chars"},
    {"split", split_method<false>, "sep maxsplit"},
    {"rsplit", split_method<true>, "sep maxsplit"},
    {"splitlines", splitlines_method, "keepends"},
    {"partition", partition_method<false>, "sep"},
    {"rpartition", partition_method<true>, "sep"},
    {"startswith", affix_method<true>, "prefix"},
    {"endswith", affix_method<false>, "prefix"},
    {"removeprefix", remove_affix_method<true>, "prefix"},
    {"removesuffix", remove_affix_method<false>, "prefix"},
    {"upper", convert_method<to_upper>},
    {"lower", convert_method<to_lower>},
    {"casefold", convert_method<to_lower>},
    {"title", convert_method<title_method>},
    {"capitalize", convert_method<capitalize>},
    {"replace", replace_method, "old new count"},
    {"find", find_method<false, false>, "sub start end"},
    {"rfind", find_method<true, false>, "sub start end"},
    {"index", find_method<false, true>, "sub start end"},
    {"rindex", find_method<true, true>, "sub start end"},
    {"count", count_method, "sub"},
    {"join", join_method, "iterable"},
    {"format", format_method, "*"},
    {"ljust", pad_method<'r'>, "width fillchar"},
    {"rjust", pad_method<'l'>, "width fillchar"},
    {"center", pad_method<'c'>, "width fillchar"},
    {"zfill", zfill_method, "width"},
    {"isspace", all_method<is_space>},
    {"isalpha", all_method<is_letter>},
    {"isdigit", all_method<is_digit>},
    {"isdecimal", all_method<is_digit>},
    {"isnumeric", all_method<is_digit>},
    {"isalnum", all_method<is_alphanumeric>},
    {"isupper", is_case_method<to_upper, to_lower>},
    {"islower", is_case_method<to_lower, to_upper>},
};

enum class Part { keys, values, items };

template <Part kPart>
Value dict_parts(const Value& self, const Args&, Budget& budget) {
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict()->items) {
    if (kPart == Part::keys) out.push_back(key);
    if (kPart == Part::values) out.push_back(value);
    if (kPart == Part::items) out.push_back(make_tuple({key, value}, budget));
  }
  return make_list(std::move(out), budget);
}

Value dict_get(const Value& self, const Args& args, Budget& budget) {
  const Value* key = args.find(0, "key");
  if (key == nullptr) fail("get expected at least 1 argument, got 0");
  for (const auto& [k, v] : self.dict()->items) {
    if (equal(k, *key, budget)) return v;
  }
  const Value* otherwise = args.find(1, "default");
  return otherwise != nullptr ? *otherwise : Value{None{}};
}

Value same(const Value& self, const Args&, Budget&) {
  return self;
}

constexpr Builtin kDictMethods[] = {
    {"items", dict_parts<Part::items>},
    {"keys", dict_parts<Part::keys>},
    {"values", dict_parts<Part::values>},
    {"get", dict_get, "key default"},
    {"copy", same},
};

Value list_index(const Value& self, const Args& args, Budget& budget) {
  const auto& items = self.list()->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!args.positional.empty() && equal(items[i], args.positional[0], budget)) {
      return {static_cast<std::int64_t>(i)};
    }
  }
  fail("the value is not in the list");
}

Value list_count(const Value& self, const Args& args, Budget& budget) {
  std::int64_t count = 0;
  for (const Value& item : self.list()->items) {
    if (!args.positional.empty() && equal(item, args.positional[0], budget)) ++count;
  }
  return {count};
}

constexpr Builtin kListMethods[] = {
    {"index", list_index, "value"}, {"count", list_count, "value"}, {"copy", same}};

Value loop_cycle(const Value& self, const Args& args, Budget&) {
  if (args.positional.empty()) fail("no items for cycling given");
  const auto index = static_cast<std::size_t>((*self.get<LoopPtr>())->index);
  return args.positional[index % args.positional.size()];
}

Value loop_changed(const Value& self, const Args& args, Budget& budget) {
  Loop& loop = **self.get<LoopPtr>();
  std::string now;
  for (const Value& value : args.positional) now += repr(value, budget) + ",";
  budget.check_text(static_cast<std::int64_t>(now.size()));
  const bool changed = loop.last_changed != now;
  loop.last_changed = std::move(now);
  return {changed};
}

constexpr Builtin kLoopMethods[] = {{"cycle", loop_cycle, "*"}, {"changed", loop_changed, "*"}};

// Methods that would change a value.
constexpr std::string_view kMutators[] = {"append", "extend",  "insert", "remove",     "pop",    "clear",
                                          "sort",   "reverse", "update", "setdefault", "popitem"};

std::span<const Builtin> methods_of(const Value& object) {
  if (object.text() != nullptr) return kTextMethods;
  if (object.dict() != nullptr) return kDictMethods;
  if (object.list() != nullptr) return kListMethods;
  if (object.is<LoopPtr>()) return kLoopMethods;
  return {};
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
  const auto methods = methods_of(object);
  return std::any_of(methods.begin(), methods.end(), [&](const Builtin& m) { return m.name == name; });
}

bool is_mutator(const Value& object, std::string_view name) {
  const bool has_any = object.dict() != nullptr || (object.list() != nullptr && !object.list()->tuple);
  if (!has_any || std::find(std::begin(kMutators), std::end(kMutators), name) == std::end(kMutators))
    return false;
  const bool of_dict =
      name == "update" || name == "setdefault" || name == "popitem" || name == "pop" || name == "clear";
  const bool of_list = name != "update" && name != "setdefault" && name != "popitem";
  return object.dict() != nullptr ? of_dict : of_list;
}

Value call_method(const Value& object, std::string_view name, const Args& args, Budget& budget) {
  for (const Builtin& method : methods_of(object)) {
    if (method.name != name) continue;
    check_arguments(method, args);
    return method.function(object, args, budget);
  }
  fail("'" + described(object) + "' has no attribute '" + std::string(name) + "'");
}

std::optional<Value> loop_attribute(const Loop& loop, std::string_view name) {
  const auto size = static_cast<std::int64_t>(loop.items->items.size());
  const auto at = [&](std::int64_t i) {
    if (i < 0) return Value::undefined("there is no previous item");
    if (i >= size) return Value::undefined("there is no next item");
    return loop.items->items[static_cast<std::size_t>(i)];
  };
  if (name == "index") return Value{loop.index + 1};
  if (name == "index0") return Value{loop.index};
  if (name == "revindex") return Value{size - loop.index};
  if (name == "revindex0") return Value{size - loop.index - 1};
  if (name == "first") return Value{loop.index == 0};
  if (name == "last") return Value{loop.index == size - 1};
  if (name == "length") return Value{size};
  if (name == "depth") return Value{std::int64_t{1}};
  if (name == "depth0") return Value{std::int64_t{0}};
  if (name == "previtem") return at(loop.index - 1);
  if (name == "nextitem") return at(loop.index + 1);
  return std::nullopt;
}

}  // namespace snug::text::jinja
