#include "text/jinja_operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_builtins.h"
#include "text/jinja_unicode.h"

namespace snug::text::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
  if (op == "+" && a.text() != nullptr) {
    fail(std::string("can only concatenate str (not \"") + type_name(b) + "\") to str");
  }
  const std::string shown = op == "**" ? "** or pow()" : std::string(op);
  fail("unsupported operand type(s) for " + shown + ": '" + type_name(a) + "' and '" + type_name(b) + "'");
}

std::int64_t checked(bool overflow, std::int64_t value) {
  if (overflow) fail("integer overflow");
  return value;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == -1) return checked(a == INT64_MIN, a == INT64_MIN ? 0 : -a);
  const std::int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (;;) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) checked(true, 0);
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) checked(true, 0);
  }
}

double python_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integers(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(a, b, &result);
  if (op == "-") overflow = __builtin_sub_overflow(a, b, &result);
  if (op == "*") overflow = __builtin_mul_overflow(a, b, &result);
  if (op == "+" || op == "-" || op == "*") return {checked(overflow, result)};
  if (op == "**") {
    if (b >= 0) return {integer_power(a, b)};
    if (a == 0) fail("0.0 cannot be raised to a negative power");
    return {std::pow(static_cast<double>(a), static_cast<double>(b))};
  }
  if (b == 0) fail(op == "/" ? "division by zero" : "integer division or modulo by zero");
  if (op == "/") return {static_cast<double>(a) / static_cast<double>(b)};
  if (op == "//") return {floor_divide(a, b)};
  if (b == -1) return {std::int64_t{0}};
  const std::int64_t rest = a % b;
  return {rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest};
}

Value doubles(std::string_view op, double a, double b) {
  if (op == "+") return {a + b};
  if (op == "-") return {a - b};
  if (op == "*") return {a * b};
  if (op == "**") {
    if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b)) fail("complex numbers are not supported");
    return {std::pow(a, b)};
  }
  if (b == 0) fail(op == "%" ? "float modulo" : "float division by zero");
  if (op == "/") return {a / b};
  if (op == "//") return {std::floor((a - python_modulo(a, b)) / b + 0.5)};
  return {python_modulo(a, b)};
}

Value repeat(const Value& sequence, std::int64_t count, Budget& budget) {
  count = std::max<std::int64_t>(count, 0);
  const auto times = [&](std::size_t size) {  // of the result, checked before it is made
    std::int64_t total = 0;
    if (__builtin_mul_overflow(static_cast<std::int64_t>(size), count, &total)) total = INT64_MAX;
    return total;
  };
  if (const std::string* text = sequence.text()) {
    budget.check_text(times(text->size()));
    std::string out;
    if (!text->empty()) {
      out.reserve(text->size() * static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) out += *text;
    }
    return make_text(std::move(out), budget);
  }
  const List& list = *sequence.list();
  budget.check_items(times(list.items.size()));
  std::vector<Value> out;
  if (!list.items.empty()) {
    for (std::int64_t i = 0; i < count; ++i) out.insert(out.end(), list.items.begin(), list.items.end());
  }
  return list.tuple ? make_tuple(std::move(out), budget) : make_list(std::move(out), budget);
}

// The index within size; nullopt if it is outside.
std::optional<std::size_t> resolve(std::int64_t index, std::int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return static_cast<std::size_t>(index);
}

std::optional<Value> find_item(const Value& object, const Value& key, Budget& budget) {
  if (const Dict* dict = object.dict()) {
    if (const std::string* name = key.text()) {
      const Value* found = dict->find(*name, budget);
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
    for (const auto& [k, v] : dict->items) {
      if (equal(k, key, budget)) return v;
    }
    return std::nullopt;
  }
  const auto index = key.integer();
  if (!index) return std::nullopt;
  if (const List* list = object.list()) {
    const auto i = resolve(*index, static_cast<std::int64_t>(list->items.size()));
    return i ? std::optional(list->items[*i]) : std::nullopt;
  }
  if (const std::string* text = object.text()) {
    budget.step(static_cast<std::int64_t>(text->size()) / 64);
    const auto i = resolve(*index, length(*text));
    if (!i) return std::nullopt;
    const std::size_t offset = offset_of(*text, static_cast<std::int64_t>(*i));
    return make_text(text->substr(offset, static_cast<std::size_t>(decode_at(*text, offset).size)), budget);
  }
  return std::nullopt;
}

std::optional<Value> find_attribute(const Value& object, std::string_view name, Budget& budget) {
  if (name.starts_with("_")) return std::nullopt;
  if (object.is<LoopPtr>()) {
    if (auto value = loop_attribute(**object.get<LoopPtr>(), name)) return value;
  }
  if (object.is<Namespace*>()) {
    const Value* found = (*object.get<Namespace*>())->find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (object.is<FunctionPtr>() && name == "name")
    return make_text((*object.get<FunctionPtr>())->name, budget);
  if (is_mutator(object, name)) {
    return Value::undefined("access to attribute '" + std::string(name) + "' of '" + type_name(object) +
                            "' object is unsafe.");
  }
  if (!has_method(object, name)) return std::nullopt;
  budget.check_depth(1 + depth_of(object));
  budget.step();
  auto method = std::make_shared<Function>();
  method->kind = Function::Kind::method;
  method->name = name;
  method->self = object;
  return Value{std::move(method)};
}

}  // namespace

void fail_undefined(const Undefined& undefined) {
  fail(undefined.hint ? *undefined.hint : "the value is undefined");
}

void refuse_undefined(const Value& value) {
  if (const auto* undefined = value.get<Undefined>()) fail_undefined(*undefined);
}

Value arithmetic(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  refuse_undefined(a);
  if (op == "%" && a.text() != nullptr) {
    const List* list = b.list();
    const bool several = list != nullptr && list->tuple;
    return make_text(percent_format(*a.text(), several ? list->items : std::vector<Value>{b}, budget),
                     budget);
  }
  refuse_undefined(b);
  const auto i = a.integer(), j = b.integer();
  if (i && j) return integers(op, *i, *j);
  const auto x = a.number(), y = b.number();
  if (x && y) return doubles(op, *x, *y);
  if (op == "*") {
    const auto is_sequence = [](const Value& v) { return v.text() != nullptr || v.list() != nullptr; };
    if (is_sequence(a) && j) return repeat(a, *j, budget);
    if (is_sequence(b) && i) return repeat(b, *i, budget);
  }
  if (op == "+" && a.text() != nullptr && b.text() != nullptr) {
    budget.check_text(static_cast<std::int64_t>(a.text()->size() + b.text()->size()));
    return make_text(*a.text() + *b.text(), budget);
  }
  if (op == "+" && a.list() != nullptr && b.list() != nullptr && a.list()->tuple == b.list()->tuple) {
    budget.check_items(static_cast<std::int64_t>(a.list()->items.size() + b.list()->items.size()));
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    return a.list()->tuple ? make_tuple(std::move(items), budget) : make_list(std::move(items), budget);
  }
  fail_operands(op, a, b);
}

Value negate(const Value& value) {
  refuse_undefined(value);
  if (const auto i = value.integer()) return {checked(*i == INT64_MIN, *i == INT64_MIN ? 0 : -*i)};
  if (const auto* d = value.get<double>()) return {-*d};
  fail(std::string("bad operand type for unary -: '") + type_name(value) + "'");
}

bool contains(const Value& container, const Value& wanted, Budget& budget) {
  if (const std::string* text = container.text()) {
    const std::string* part = wanted.text();
    if (part == nullptr) {
      refuse_undefined(wanted);
      fail(std::string("'in <string>' requires string as left operand, not ") + type_name(wanted));
    }
    budget.step(static_cast<std::int64_t>(text->size()) / 64);
    return text->find(*part) != std::string::npos;
  }
  if (container.dict() != nullptr) return find_item(container, wanted, budget).has_value();
  if (container.is_undefined()) return false;
  const List* list = container.list();
  if (list == nullptr) fail(std::string("argument of type '") + type_name(container) + "' is not iterable");
  return std::any_of(list->items.begin(), list->items.end(),
                     [&](const Value& value) { return equal(value, wanted, budget); });
}

bool compare(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "==") return equal(a, b, budget);
  if (op == "!=") return !equal(a, b, budget);
  if (op == "in") return contains(b, a, budget);
  if (op == "not in") return !contains(b, a, budget);
  if (op == "<") return less(a, b, budget, op);
  if (op == ">") return less(b, a, budget, op);
  if (op == "<=") return less(a, b, budget, op) || equal(a, b, budget);
  return less(b, a, budget, op) || equal(a, b, budget);
}

Value item(const Value& object, const Value& key, Budget& budget) {
  refuse_undefined(object);
  if (auto found = find_item(object, key, budget)) return *found;
  if (const std::string* name = key.text()) {
    if (auto found = find_attribute(object, *name, budget)) return *found;
    return Value::undefined("'" + described(object) + "' has no attribute '" + *name + "'");
  }
  return Value::undefined(described(object) + " has no element " + repr(key, budget));
}

Value attribute(const Value& object, std::string_view name, Budget& budget) {
  refuse_undefined(object);
  if (auto found = find_attribute(object, name, budget)) return *found;
  if (const Dict* dict = object.dict()) {
    if (const Value* found = dict->find(name, budget)) return *found;
  }
  return Value::undefined("'" + described(object) + "' has no attribute '" + std::string(name) + "'");
}

Value slice(const Value& object, const Value& first, const Value& last, const Value& step_value,
            Budget& budget) {
  refuse_undefined(object);
  const std::string* text = object.text();
  const List* list = object.list();
  if (text == nullptr && list == nullptr) {
    if (object.dict() != nullptr) return Value::undefined(described(object) + " has no such element");
    fail(std::string("'") + type_name(object) + "' object is not subscriptable");
  }
  const auto bound = [](const Value& value) -> std::optional<std::int64_t> {
    if (value.is_none() || value.is_undefined()) return std::nullopt;
    const auto i = value.integer();
    if (!i) fail("slice indices must be integers or None");
    return i;
  };
  const std::int64_t step = bound(step_value).value_or(1);
  if (step == 0) fail("slice step cannot be zero");
  if (text != nullptr) budget.step(static_cast<std::int64_t>(text->size()) / 64);
  const std::int64_t size = text != nullptr ? length(*text) : static_cast<std::int64_t>(list->items.size());
  const auto clamp = [&](std::optional<std::int64_t> index, std::int64_t open) {
    if (!index) return open;
    if (*index < 0) *index = std::max<std::int64_t>(*index + size, step < 0 ? -1 : 0);
    return std::min(*index, step < 0 ? size - 1 : size);
  };
  const std::int64_t begin = clamp(bound(first), step < 0 ? size - 1 : 0);
  const std::int64_t end = clamp(bound(last), step < 0 ? -1 : size);

  if (text != nullptr && step == 1) {
    if (begin >= end) return make_text("", budget);
    const std::size_t from = offset_of(*text, begin);
    const std::size_t count = offset_of(std::string_view(*text).substr(from), end - begin);
    return make_text(text->substr(from, count), budget);
  }
  const ListPtr items = iterate(object, budget);
  std::vector<Value> out;
  std::string characters;
  for (std::int64_t i = begin; step < 0 ? i > end : i < end;) {
    budget.step();
    const Value& picked = items->items[static_cast<std::size_t>(i)];
    text != nullptr ? void(characters += *picked.text()) : out.push_back(picked);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (text != nullptr) return make_text(std::move(characters), budget);
  return list->tuple ? make_tuple(std::move(out), budget) : make_list(std::move(out), budget);
}

}  // namespace snug::text::jinja
