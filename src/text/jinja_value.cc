#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_unicode.h"

namespace snug::text::jinja {
namespace {

constexpr std::int64_t kObjectBytes = 96;  // what a shared string, list or dict costs beside its content
constexpr std::int64_t kBytesPerStep = 256;

int depth_of_items(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return depth + 1;
}

}  // namespace

void fail(std::string message) {
  throw Failure{std::move(message)};
}

void Budget::step(std::int64_t count) {
  steps_ += count;
  if (steps_ > limits_.max_steps) fail("the template takes too many steps");
}

void Budget::check_text(std::int64_t bytes) const {
  if (bytes > limits_.max_output) fail("the template makes a text that is too long");
}

void Budget::check_depth(int depth) const {
  if (depth > limits_.max_depth) fail("values are nested too deeply");
}

void Budget::check_items(std::int64_t count) {
  if (count > limits_.max_steps) fail("the template makes a list that is too long");
  step(count);
}

void Budget::hold(std::int64_t bytes) {
  // Several strings of the largest size may live at once, but not any number of them.
  if (held_ + bytes > 4 * limits_.max_output + (1 << 20)) fail("the template holds too much memory");
  held_ += bytes;
  step(1 + bytes / kBytesPerStep);
}

Value Value::undefined(std::string hint) {
  return {Undefined{std::make_shared<const std::string>(std::move(hint))}};
}

const std::string* Value::text() const {
  const auto* p = get<TextPtr>();
  return p == nullptr ? nullptr : &(*p)->value;
}
const List* Value::list() const {
  const auto* p = get<ListPtr>();
  return p == nullptr ? nullptr : p->get();
}
const Dict* Value::dict() const {
  const auto* p = get<DictPtr>();
  return p == nullptr ? nullptr : p->get();
}
std::optional<std::int64_t> Value::integer() const {
  if (const auto* i = get<std::int64_t>()) return *i;
  if (const auto* b = get<bool>()) return *b ? 1 : 0;
  return std::nullopt;
}
std::optional<double> Value::number() const {
  if (const auto* d = get<double>()) return *d;
  if (const auto i = integer()) return static_cast<double>(*i);
  return std::nullopt;
}

Text::Text(std::string v, Budget& budget)
    : value(std::move(v)), charge(budget, kObjectBytes + static_cast<std::int64_t>(value.size())) {
  budget.check_text(static_cast<std::int64_t>(value.size()));
}

List::List(std::vector<Value> v, bool is_tuple, Budget& budget)
    : items(std::move(v)),
      tuple(is_tuple),
      depth(depth_of_items(items)),
      charge(budget, kObjectBytes + static_cast<std::int64_t>(items.size() * sizeof(Value))) {
  budget.check_depth(depth);
}

Dict::Dict(std::vector<std::pair<Value, Value>> v, Budget& budget)
    : items(std::move(v)),
      charge(budget, kObjectBytes + static_cast<std::int64_t>(items.size() * 2 * sizeof(Value))) {
  for (const auto& [key, value] : items) depth = std::max({depth, 1 + depth_of(key), 1 + depth_of(value)});
  budget.check_depth(depth);
}

const Value* Dict::find(std::string_view key, Budget& budget) const {
  for (const auto& [k, v] : items) {
    const std::string* text = k.text();
    if (text != nullptr && *text == key) return &v;
  }
  budget.step(static_cast<std::int64_t>(items.size() / 16));
  return nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

const Value* Args::find(std::size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Value make_text(std::string value, Budget& budget) {
  return {std::make_shared<const Text>(std::move(value), budget)};
}
Value make_list(std::vector<Value> items, Budget& budget) {
  return {std::make_shared<const List>(std::move(items), false, budget)};
}
Value make_tuple(std::vector<Value> items, Budget& budget) {
  return {std::make_shared<const List>(std::move(items), true, budget)};
}

Value make_dict(std::vector<std::pair<Value, Value>> items, Budget& budget) {
  std::vector<std::pair<Value, Value>> distinct;
  for (auto& [key, value] : items) {
    const List* list = key.list();
    if (key.dict() != nullptr || (list != nullptr && !list->tuple)) {
      fail(std::string("unhashable type: '") + type_name(key) + "'");
    }
    const auto same = [&, k = &key](const auto& item) { return equal(item.first, *k, budget); };
    const auto it = std::find_if(distinct.begin(), distinct.end(), same);
    if (it == distinct.end()) {
      distinct.emplace_back(std::move(key), std::move(value));
    } else {
      it->second = std::move(value);
    }
  }
  return {std::make_shared<const Dict>(std::move(distinct), budget)};
}

Value from_json(const OrderedJson& json, Budget& budget, int depth) {
  budget.check_depth(depth);
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return {json.get<bool>()};
    case OrderedJson::value_t::number_integer:
      return {json.get<std::int64_t>()};
    case OrderedJson::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(INT64_MAX)) return {static_cast<double>(number)};
      return {static_cast<std::int64_t>(number)};
    }
    case OrderedJson::value_t::number_float:
      return {json.get<double>()};
    case OrderedJson::value_t::string:
      return make_text(json.get_ref<const std::string&>(), budget);
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item, budget, depth + 1));
      return make_list(std::move(items), budget);
    }
    case OrderedJson::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(json.size());
      for (const auto& [key, item] : json.items()) {
        items.emplace_back(make_text(key, budget), from_json(item, budget, depth + 1));
      }
      // The parser already made keys distinct.
      return {std::make_shared<const Dict>(std::move(items), budget)};
    }
    default:
      return {None{}};
  }
}

const char* type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is<bool>()) return "bool";
  if (value.is<std::int64_t>()) return "int";
  if (value.is<double>()) return "float";
  if (value.is<TextPtr>()) return "str";
  if (value.is<DictPtr>()) return "dict";
  if (value.is<LoopPtr>()) return "LoopContext";
  if (value.is<FunctionPtr>()) return "function";
  if (value.is<Namespace*>()) return "Namespace";
  return value.list()->tuple ? "tuple" : "list";
}

std::string described(const Value& value) {
  if (value.is_none()) return "None";
  return std::string(type_name(value)) + " object";
}

int depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  if (const auto* loop = value.get<LoopPtr>()) return 1 + (*loop)->items->depth;
  if (const auto* function = value.get<FunctionPtr>()) return 1 + depth_of((*function)->self);
  return 0;
}

bool truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto n = value.number()) return *n != 0;
  if (const std::string* text = value.text()) return !text->empty();
  if (const List* list = value.list()) return !list->items.empty();
  if (const Dict* dict = value.dict()) return !dict->items.empty();
  return true;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (a.is<std::int64_t>() && b.is<std::int64_t>()) return *a.get<std::int64_t>() == *b.get<std::int64_t>();
  if (const auto x = a.number()) {
    const auto y = b.number();
    return y && *x == *y;
  }
  if (const std::string* x = a.text()) {
    const std::string* y = b.text();
    if (y != nullptr && x->size() == y->size())
      budget.step(static_cast<std::int64_t>(x->size()) / kBytesPerStep);
    return y != nullptr && *x == *y;
  }
  if (const List* x = a.list()) {
    const List* y = b.list();
    if (y == nullptr || x->tuple != y->tuple || x->items.size() != y->items.size()) return false;
    for (std::size_t i = 0; i < x->items.size(); ++i) {
      if (!equal(x->items[i], y->items[i], budget)) return false;
    }
    return true;
  }
  if (const Dict* x = a.dict()) {
    const Dict* y = b.dict();
    if (y == nullptr || x->items.size() != y->items.size()) return false;
    return std::all_of(x->items.begin(), x->items.end(), [&](const auto& item) {
      return std::any_of(y->items.begin(), y->items.end(), [&](const auto& other) {
        return equal(item.first, other.first, budget) && equal(item.second, other.second, budget);
      });
    });
  }
  if (a.data.index() != b.data.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (const auto* x = a.get<LoopPtr>()) return *x == *b.get<LoopPtr>();
  if (const auto* x = a.get<FunctionPtr>()) return *x == *b.get<FunctionPtr>();
  return *a.get<Namespace*>() == *b.get<Namespace*>();
}

bool less(const Value& a, const Value& b, Budget& budget, std::string_view op) {
  budget.step();
  for (const Value* v : {&a, &b}) {
    if (const auto* undefined = v->get<Undefined>())
      fail(undefined->hint ? *undefined->hint : "undefined value");
  }
  if (a.integer() && b.integer()) return *a.integer() < *b.integer();
  if (a.number() && b.number()) return *a.number() < *b.number();
  // The order of UTF-8 bytes is the order of code points.
  if (a.text() != nullptr && b.text() != nullptr) {
    budget.step(static_cast<std::int64_t>(std::min(a.text()->size(), b.text()->size())) / kBytesPerStep);
    return *a.text() < *b.text();
  }
  const List* x = a.list();
  const List* y = b.list();
  if (x != nullptr && y != nullptr && x->tuple == y->tuple) {
    const std::size_t common = std::min(x->items.size(), y->items.size());
    for (std::size_t i = 0; i < common; ++i) {
      if (!equal(x->items[i], y->items[i], budget)) return less(x->items[i], y->items[i], budget, op);
    }
    return x->items.size() < y->items.size();
  }
  fail("'" + std::string(op) + "' not supported between instances of '" + type_name(a) + "' and '" +
       type_name(b) + "'");
}

ListPtr iterate(const Value& value, Budget& budget) {
  if (const auto* list = value.get<ListPtr>()) return *list;
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    budget.check_items(static_cast<std::int64_t>(dict->items.size()));
    for (const auto& item : dict->items) items.push_back(item.first);
  } else if (const std::string* text = value.text()) {
    for (std::size_t i = 0; i < text->size();) {
      const int size = decode_at(*text, i).size;
      items.push_back(make_text(text->substr(i, static_cast<std::size_t>(size)), budget));
      i += static_cast<std::size_t>(size);
    }
  } else if (!value.is_undefined()) {
    fail("'" + std::string(type_name(value)) + "' object is not iterable");
  }
  return std::make_shared<const List>(std::move(items), false, budget);
}

}  // namespace snug::text::jinja
