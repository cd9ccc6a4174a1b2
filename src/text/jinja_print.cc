// Values as Python's str() and repr() print them.
#include <charconv>
#include <cmath>

#include "text/jinja_unicode.h"
#include "text/jinja_value.h"

namespace snug::text::jinja {
namespace {

class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  void print(const Value& value) {
    budget_.step();
    if (const std::string* text = value.text()) {
      add(quote_text(*text));
    } else if (const List* list = value.list()) {
      add(list->tuple ? "(" : "[");
      for (std::size_t i = 0; i < list->items.size(); ++i) {
        if (i > 0) add(", ");
        print(list->items[i]);
      }
      if (list->tuple && list->items.size() == 1) add(",");
      add(list->tuple ? ")" : "]");
    } else if (const Dict* dict = value.dict()) {
      add("{");
      bool first = true;
      for (const auto& [key, item] : dict->items) {
        if (!first) add(", ");
        first = false;
        print(key);
        add(": ");
        print(item);
      }
      add("}");
    } else if (value.is_undefined()) {
      add("Undefined");
    } else {
      add(to_text(value, budget_));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void add(std::string_view text) {
    out_ += text;
    budget_.check_text(static_cast<std::int64_t>(out_.size()));
  }

  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string format_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // The shortest digits that read back the same, laid out by Python's rule: plain for exponents -4 to 15.
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;  // to_chars writes two exponent digits, as Python does
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out;
  if (exponent < 0) {
    out = "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out = digits.substr(0, whole) + "." + (digits.size() > whole ? digits.substr(whole) : "0");
  }
  return negative ? "-" + out : out;
}

std::string repr(const Value& value, Budget& budget) {
  Printer printer(budget);
  printer.print(value);
  return printer.take();
}

std::string to_text(const Value& value, Budget& budget) {
  if (const std::string* text = value.text()) return *text;
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (const auto* b = value.get<bool>()) return *b ? "True" : "False";
  if (const auto* i = value.get<std::int64_t>()) return std::to_string(*i);
  if (const auto* d = value.get<double>()) return format_double(*d);
  if (value.is<LoopPtr>()) {
    const Loop& loop = **value.get<LoopPtr>();
    return "<LoopContext " + std::to_string(loop.index + 1) + "/" + std::to_string(loop.items->items.size()) +
           ">";
  }
  if (value.is<FunctionPtr>()) return "<function " + (*value.get<FunctionPtr>())->name + ">";
  if (value.is<Namespace*>()) return "<Namespace>";
  return repr(value, budget);
}

}  // namespace snug::text::jinja
