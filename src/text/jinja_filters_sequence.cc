// Filters on lists and dicts.
#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace snug::text::jinja {
namespace {

// The value at a path such as "function.name" or 0; undefined if there is none.
Value path_of(const Value& value, const Value& path, const Value* otherwise, Budget& budget) {
  Value at = value;
  if (path.text() == nullptr) {
    at = item(value, path, budget);
  } else {
    std::string_view rest = *path.text();
    for (bool more = true; more;) {
      const std::size_t dot = rest.find('.');
      more = dot != std::string_view::npos;
      const std::string part(rest.substr(0, dot));
      if (more) rest = rest.substr(dot + 1);
      const bool number =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
      at = item(at, number ? Value{static_cast<std::int64_t>(std::stoll(part))} : make_text(part, budget),
                budget);
      if (at.is_undefined() && otherwise != nullptr) return *otherwise;
    }
  }
  return at.is_undefined() && otherwise != nullptr ? *otherwise : at;
}

// What sort, unique, min and max compare: an attribute perhaps, strings without case unless asked.
Value key_of(const Value& value, const Value* path, bool case_sensitive, Budget& budget) {
  Value key = path != nullptr && !path->is_none() ? path_of(value, *path, nullptr, budget) : value;
  if (!case_sensitive && key.text() != nullptr) return make_text(to_lower(*key.text()), budget);
  return key;
}

using Keyed = std::pair<Value, Value>;  // key, value

std::vector<Keyed> keyed(const Value& value, const Value* path, bool case_sensitive, Budget& budget) {
  std::vector<Keyed> out;
  const ListPtr items = iterate(value, budget);
  budget.check_items(static_cast<std::int64_t>(items->items.size()));
  for (const Value& v : items->items) out.emplace_back(key_of(v, path, case_sensitive, budget), v);
  return out;
}

void sort_keyed(std::vector<Keyed>& items, bool reverse, Budget& budget) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.first, a.first, budget) : less(a.first, b.first, budget);
  });
}

Value values_of(std::vector<Keyed> items, Budget& budget) {
  std::vector<Value> out;
  for (Keyed& entry : items) out.push_back(std::move(entry.second));
  return make_list(std::move(out), budget);
}

Value length_filter(const Value& value, const Args&, Budget& budget) {
  if (const std::string* text = value.text()) {
    budget.step(static_cast<std::int64_t>(text->size()) / 64);
    return {length(*text)};
  }
  if (const List* list = value.list()) return {static_cast<std::int64_t>(list->items.size())};
  if (const Dict* dict = value.dict()) return {static_cast<std::int64_t>(dict->items.size())};
  if (const auto* loop = value.get<LoopPtr>())
    return {static_cast<std::int64_t>((*loop)->items->items.size())};
  if (value.is_undefined()) return {std::int64_t{0}};
  fail(std::string("object of type '") + type_name(value) + "' has no len()");
}

Value first_filter(const Value& value, const Args&, Budget& budget) {
  const ListPtr items = iterate(value, budget);
  return items->items.empty() ? Value::undefined("No first item, sequence was empty.") : items->items.front();
}

Value last_filter(const Value& value, const Args&, Budget& budget) {
  const ListPtr items = iterate(value, budget);
  return items->items.empty() ? Value::undefined("No last item, sequence was empty.") : items->items.back();
}

Value list_filter(const Value& value, const Args&, Budget& budget) {
  const List* list = value.list();
  if (list != nullptr && !list->tuple) return value;
  return make_list(iterate(value, budget)->items, budget);
}

Value reverse_filter(const Value& value, const Args&, Budget& budget) {
  std::vector<Value> items = iterate(value, budget)->items;
  budget.check_items(static_cast<std::int64_t>(items.size()));
  std::reverse(items.begin(), items.end());
  if (value.text() != nullptr) return join_values(items, "", true, budget);
  return make_list(std::move(items), budget);
}

Value join_filter(const Value& value, const Args& args, Budget& budget) {
  std::vector<Value> items = iterate(value, budget)->items;
  const Value* path = args.find(1, "attribute");
  if (path != nullptr && !path->is_none()) {
    for (Value& v : items) v = path_of(v, *path, nullptr, budget);
  }
  return join_values(items, text_argument(args, 0, "d", "", budget), false, budget);
}

Value default_filter(const Value& value, const Args& args, Budget& budget) {
  const bool falsy_too = bool_argument(args, 1, "boolean", false);
  if (!value.is_undefined() && (!falsy_too || truthy(value))) return value;
  const Value* otherwise = args.find(0, "default_value");
  return otherwise != nullptr ? *otherwise : make_text("", budget);
}

Value sort_filter(const Value& value, const Args& args, Budget& budget) {
  auto items =
      keyed(value, args.find(2, "attribute"), bool_argument(args, 1, "case_sensitive", false), budget);
  sort_keyed(items, bool_argument(args, 0, "reverse", false), budget);
  return values_of(std::move(items), budget);
}

Value unique_filter(const Value& value, const Args& args, Budget& budget) {
  std::vector<Keyed> kept;
  for (Keyed& entry :
       keyed(value, args.find(1, "attribute"), bool_argument(args, 0, "case_sensitive", false), budget)) {
    const bool seen = std::any_of(kept.begin(), kept.end(), [&](const Keyed& other) {
      return equal(other.first, entry.first, budget);
    });
    if (!seen) kept.push_back(std::move(entry));
  }
  return values_of(std::move(kept), budget);
}

template <bool kMax>
Value extreme_filter(const Value& value, const Args& args, Budget& budget) {
  auto items =
      keyed(value, args.find(1, "attribute"), bool_argument(args, 0, "case_sensitive", false), budget);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    const bool better = kMax ? less(items[best].first, items[i].first, budget)
                             : less(items[i].first, items[best].first, budget);
    if (better) best = i;
  }
  return items[best].second;
}

Value sum_filter(const Value& value, const Args& args, Budget& budget) {
  const Value* path = args.find(0, "attribute");
  const Value* start = args.find(1, "start");
  Value total = start != nullptr ? *start : Value{std::int64_t{0}};
  if (total.text() != nullptr) fail("sum() can't sum strings [use ''.join(seq) instead]");
  const ListPtr items = iterate(value, budget);
  for (const Value& v : items->items) {
    const bool by_path = path != nullptr && !path->is_none();
    total = arithmetic("+", total, by_path ? path_of(v, *path, nullptr, budget) : v, budget);
  }
  return total;
}

Value items_filter(const Value& value, const Args&, Budget& budget) {
  if (value.is_undefined()) return make_list({}, budget);
  if (value.dict() == nullptr) fail("Can only get item pairs from a mapping.");
  return call_method(value, "items", {}, budget);
}

Value dictsort_filter(const Value& value, const Args& args, Budget& budget) {
  const bool case_sensitive = bool_argument(args, 0, "case_sensitive", false);
  const std::string by = text_argument(args, 1, "by", "key", budget);
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (value.dict() == nullptr)
    fail(std::string("'") + type_name(value) + "' object has no attribute 'items'");
  const Value position{std::int64_t{by == "key" ? 0 : 1}};
  auto items = keyed(call_method(value, "items", {}, budget), &position, case_sensitive, budget);
  sort_keyed(items, bool_argument(args, 2, "reverse", false), budget);
  return values_of(std::move(items), budget);
}

Value batch_filter(const Value& value, const Args& args, Budget& budget) {
  const std::int64_t size = integer_argument(args, 0, "linecount", 0);
  if (size < 1) fail("batch: linecount must be at least 1");
  const Value* fill = args.find(1, "fill_with");
  std::vector<Value> rows, row;
  const ListPtr items = iterate(value, budget);
  for (const Value& v : items->items) {
    if (static_cast<std::int64_t>(row.size()) == size)
      rows.push_back(make_list(std::exchange(row, {}), budget));
    row.push_back(v);
  }
  if (!row.empty()) {
    if (fill != nullptr && !fill->is_none()) {
      budget.check_items(size);
      row.resize(static_cast<std::size_t>(size), *fill);
    }
    rows.push_back(make_list(std::move(row), budget));
  }
  return make_list(std::move(rows), budget);
}

Value groupby_filter(const Value& value, const Args& args, Budget& budget) {
  const Value* path = args.find(0, "attribute");
  if (path == nullptr) fail("groupby: missing argument 'attribute'");
  auto items = keyed(value, path, bool_argument(args, 2, "case_sensitive", false), budget);
  sort_keyed(items, false, budget);
  std::vector<Value> groups;
  for (std::size_t i = 0; i < items.size();) {
    std::vector<Value> group;
    const std::size_t first = i;
    for (; i < items.size() && equal(items[i].first, items[first].first, budget); ++i)
      group.push_back(items[i].second);
    const Value grouper = path_of(items[first].second, *path, nullptr, budget);
    groups.push_back(make_tuple({grouper, make_list(std::move(group), budget)}, budget));
  }
  return make_list(std::move(groups), budget);
}

// The arguments after the first `skip`.
Args rest_of(const Args& args, std::size_t skip) {
  Args rest;
  const auto first = std::min(skip, args.positional.size());
  rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(first), args.positional.end());
  rest.named = args.named;
  return rest;
}

Value map_filter(const Value& value, const Args& args, Budget& budget) {
  const ListPtr items = iterate(value, budget);
  std::vector<Value> out;
  if (args.positional.empty()) {
    const Value* path = args.find(0, "attribute");
    if (path == nullptr) fail("map requires a filter argument");
    const Value* otherwise = args.find(1, "default");
    for (const Value& v : items->items) out.push_back(path_of(v, *path, otherwise, budget));
  } else {
    const std::string name = text_argument(args, 0, "name", "", budget);
    const Args rest = rest_of(args, 1);
    for (const Value& v : items->items) out.push_back(apply_filter(name, v, rest, budget));
  }
  return make_list(std::move(out), budget);
}

template <bool kKeep, bool kByAttribute>
Value select_filter(const Value& value, const Args& args, Budget& budget) {
  const std::size_t skip = kByAttribute ? 1 : 0;
  if (kByAttribute && args.positional.empty()) fail("Missing parameter for attribute name");
  const bool tested = args.positional.size() > skip;
  const std::string test = text_argument(args, skip, "test", "", budget);
  const Args rest = rest_of(args, skip + 1);
  std::vector<Value> out;
  const ListPtr items = iterate(value, budget);
  for (const Value& v : items->items) {
    budget.step();
    const Value subject = kByAttribute ? path_of(v, args.positional[0], nullptr, budget) : v;
    const bool passes = tested ? apply_test(test, subject, rest, budget) : truthy(subject);
    if (passes == kKeep) out.push_back(v);
  }
  return make_list(std::move(out), budget);
}

Value attr_filter(const Value& value, const Args& args, Budget& budget) {
  return attribute(value, text_argument(args, 0, "name", "", budget), budget);
}

constexpr Builtin kSequenceFilters[] = {
    {"length", length_filter},
    {"count", length_filter},
    {"first", first_filter},
    {"last", last_filter},
    {"list", list_filter},
    {"reverse", reverse_filter},
    {"join", join_filter, "d attribute"},
    {"default", default_filter, "default_value boolean"},
    {"d", default_filter, "default_value boolean"},
    {"sort", sort_filter, "reverse case_sensitive attribute"},
    {"unique", unique_filter, "case_sensitive attribute"},
    {"min", extreme_filter<false>, "case_sensitive attribute"},
    {"max", extreme_filter<true>, "case_sensitive attribute"},
    {"sum", sum_filter, "attribute start"},
    {"items", items_filter},
    {"dictsort", dictsort_filter, "case_sensitive by reverse"},
    {"batch", batch_filter, "linecount fill_with"},
    {"groupby", groupby_filter, "attribute default case_sensitive"},
    {"map", map_filter, "*"},
    {"select", select_filter<true, false>, "*"},
    {"reject", select_filter<false, false>, "*"},
    {"selectattr", select_filter<true, true>, "*"},
    {"rejectattr", select_filter<false, true>, "*"},
    {"attr", attr_filter, "name"},
};

}  // namespace

std::span<const Builtin> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace snug::text::jinja
