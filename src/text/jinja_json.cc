// The tojson filter: Python's json.dumps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace snug::text::jinja {
namespace {

struct Style {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

class Writer {
 public:
  Writer(const Style& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value, int level) {
    budget_.step();
    if (const std::string* text = value.text()) {
      string(*text);
    } else if (value.number() || value.is_none()) {
      add(scalar(value));
    } else if (const List* list = value.list()) {
      array(*list, level);
    } else if (const Dict* dict = value.dict()) {
      object(*dict, level);
    } else {
      fail(std::string("Object of type ") + type_name(value) + " is not JSON serializable");
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void add(std::string_view text) {
    out_ += text;
    budget_.check_text(static_cast<std::int64_t>(out_.size()));
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const auto* b = value.get<bool>()) return *b ? "true" : "false";
    if (const auto i = value.integer()) return std::to_string(*i);
    const double d = *value.number();
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return format_double(d);
  }

  void newline(int level) {
    if (!style_.indent) return;
    add("\n");
    for (int i = 0; i < level; ++i) add(*style_.indent);
  }

  void array(const List& list, int level) {
    if (list.items.empty()) return add("[]");
    add("[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) add(style_.item_separator);
      newline(level + 1);
      write(list.items[i], level + 1);
    }
    newline(level);
    add("]");
  }

  void object(const Dict& dict, int level) {
    if (dict.items.empty()) return add("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto* a, const auto* b) { return less(a->first, b->first, budget_); });
    }
    add("{");
    bool first = true;
    for (const auto* item : items) {
      if (!first) add(style_.item_separator);
      first = false;
      newline(level + 1);
      const Value& key = item->first;
      if (key.text() == nullptr && !key.number() && !key.is_none()) {
        fail(std::string("keys must be str, int, float, bool or None, not ") + type_name(key));
      }
      string(key.text() != nullptr ? *key.text() : scalar(key));
      add(style_.key_separator);
      write(item->second, level + 1);
    }
    newline(level);
    add("}");
  }

  void string(std::string_view text) {
    add("\"");
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint c = decode_at(text, i);
      character(c.value, text.substr(i, static_cast<std::size_t>(c.size)));
      i += static_cast<std::size_t>(c.size);
    }
    add("\"");
  }

  void character(char32_t c, std::string_view bytes) {
    static constexpr std::string_view kFrom = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kTo = "\"\\bfnrt";
    const auto named = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
    if (named != std::string_view::npos) {
      const char escape[2] = {'\\', kTo[named]};
      add({escape, 2});
    } else if (c < 0x20 || (style_.ascii && c >= 0x7F)) {
      if (c >= 0x10000) {
        c -= 0x10000;
        add(fmt::format("\\u{:04x}", 0xD800 + static_cast<std::uint32_t>(c >> 10)));
        c = 0xDC00 + (c & 0x3FF);
      }
      add(fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c)));
    } else {
      add(bytes);
    }
  }

  const Style& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

Value filter_tojson(const Value& value, const Args& args, Budget& budget) {
  Style style;
  style.ascii = bool_argument(args, 0, "ensure_ascii", false);
  const Value* indent = args.find(1, "indent");
  if (indent != nullptr && !indent->is_none()) {
    const auto width = indent->integer();
    if (width) budget.check_text(*width);
    style.indent = width ? std::string(static_cast<std::size_t>(std::max<std::int64_t>(*width, 0)), ' ')
                         : text_argument(args, 1, "indent", "", budget);
    style.item_separator = ",";
  }
  const Value* separators = args.find(2, "separators");
  if (separators != nullptr && !separators->is_none()) {
    const List* pair = separators->list();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].text() == nullptr ||
        pair->items[1].text() == nullptr) {
      fail("tojson: separators must be two strings");
    }
    style.item_separator = *pair->items[0].text();
    style.key_separator = *pair->items[1].text();
  }
  style.sort_keys = bool_argument(args, 3, "sort_keys", false);
  Writer writer(style, budget);
  writer.write(value, 0);
  return make_text(writer.take(), budget);
}

}  // namespace snug::text::jinja
