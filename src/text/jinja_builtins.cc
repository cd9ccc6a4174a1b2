// Lookup of filters, the tests, and the global functions.
#include "text/jinja_builtins.h"

#include <algorithm>
#include <ctime>

#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace snug::text::jinja {
namespace {

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), sequence_filters()}) {
    for (const Builtin& filter : table) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

const Value& operand(const Args& args) {
  if (args.positional.empty()) fail("the test needs an argument");
  return args.positional[0];
}

template <char kOp>  // the first letter of eq ne lt gt le ge, with L and G for the last two
Value compare_test(const Value& value, const Args& args, Budget& budget) {
  constexpr std::string_view op = kOp == 'e'   ? "=="
                                  : kOp == 'n' ? "!="
                                  : kOp == 'l' ? "<"
                                  : kOp == 'g' ? ">"
                                  : kOp == 'L' ? "<="
                                               : ">=";
  return {compare(op, value, operand(args), budget)};
}

std::int64_t remainder(const Value& value, const Value& divisor, Budget& budget) {
  const auto rest = arithmetic("%", value, divisor, budget).number();
  if (!rest) fail("a number is required");
  return *rest == 0 ? 0 : *rest == 1 ? 1 : 2;
}

Value odd_test(const Value& value, const Args&, Budget& budget) {
  return {remainder(value, {std::int64_t{2}}, budget) == 1};
}
Value even_test(const Value& value, const Args&, Budget& budget) {
  return {remainder(value, {std::int64_t{2}}, budget) == 0};
}
Value divisible_test(const Value& value, const Args& args, Budget& budget) {
  return {remainder(value, operand(args), budget) == 0};
}
Value in_test(const Value& value, const Args& args, Budget& budget) {
  return {contains(operand(args), value, budget)};
}
Value same_test(const Value& value, const Args& args, Budget& budget) {
  return {value.data.index() == operand(args).data.index() && equal(value, operand(args), budget)};
}
Value lower_test(const Value& value, const Args&, Budget& budget) {
  const std::string text = to_text(value, budget);
  return {to_lower(text) == text && to_upper(text) != text};
}
Value upper_test(const Value& value, const Args&, Budget& budget) {
  const std::string text = to_text(value, budget);
  return {to_upper(text) == text && to_lower(text) != text};
}
Value filter_test(const Value& value, const Args&, Budget&) {
  return {value.text() != nullptr && is_filter(*value.text())};
}
Value test_test(const Value& value, const Args&, Budget&) {
  return {value.text() != nullptr && is_test(*value.text())};
}

bool is_sequence(const Value& v) {
  return v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr || v.is_undefined();
}

using Plain = bool (*)(const Value&);
template <Plain kTest>
Value plain_test(const Value& value, const Args&, Budget&) {
  return {kTest(value)};
}

constexpr Builtin kTests[] = {
    {"defined", plain_test<[](const Value& v) { return !v.is_undefined(); }>},
    {"undefined", plain_test<[](const Value& v) { return v.is_undefined(); }>},
    {"none", plain_test<[](const Value& v) { return v.is_none(); }>},
    {"string", plain_test<[](const Value& v) { return v.text() != nullptr; }>},
    {"number", plain_test<[](const Value& v) { return v.number().has_value(); }>},
    {"integer", plain_test<[](const Value& v) { return v.is<std::int64_t>(); }>},
    {"float", plain_test<[](const Value& v) { return v.is<double>(); }>},
    {"boolean", plain_test<[](const Value& v) { return v.is<bool>(); }>},
    {"true", plain_test<[](const Value& v) { return v.is<bool>() && truthy(v); }>},
    {"false", plain_test<[](const Value& v) { return v.is<bool>() && !truthy(v); }>},
    {"mapping", plain_test<[](const Value& v) { return v.dict() != nullptr; }>},
    {"sequence", plain_test<is_sequence>},
    {"iterable", plain_test<[](const Value& v) { return is_sequence(v) || v.is<LoopPtr>(); }>},
    {"callable", plain_test<[](const Value& v) { return v.is<FunctionPtr>(); }>},
    {"escaped", plain_test<[](const Value&) { return false; }>},
    {"odd", odd_test},
    {"even", even_test},
    {"divisibleby", divisible_test, "num"},
    {"in", in_test, "seq"},
    {"sameas", same_test, "other"},
    {"lower", lower_test},
    {"upper", upper_test},
    {"filter", filter_test},
    {"test", test_test},
    {"==", compare_test<'e'>, "other"},
    {"eq", compare_test<'e'>, "other"},
    {"equalto", compare_test<'e'>, "other"},
    {"!=", compare_test<'n'>, "other"},
    {"ne", compare_test<'n'>, "other"},
    {"<", compare_test<'l'>, "other"},
    {"lt", compare_test<'l'>, "other"},
    {"lessthan", compare_test<'l'>, "other"},
    {">", compare_test<'g'>, "other"},
    {"gt", compare_test<'g'>, "other"},
    {"greaterthan", compare_test<'g'>, "other"},
    {"<=", compare_test<'L'>, "other"},
    {"le", compare_test<'L'>, "other"},
    {">=", compare_test<'G'>, "other"},
    {"ge", compare_test<'G'>, "other"},
};

const Builtin* find_test(std::string_view name) {
  for (const Builtin& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

Value range_function(const Args& args, Budget& budget) {
  if (args.positional.empty() || args.positional.size() > 3) fail("range expects 1 to 3 arguments");
  std::int64_t numbers[3] = {0, 0, 1};
  for (std::size_t i = 0; i < args.positional.size(); ++i) {
    const auto number = args.positional[i].integer();
    refuse_undefined(args.positional[i]);
    if (!number)
      fail(std::string("'") + type_name(args.positional[i]) + "' object cannot be interpreted as an integer");
    numbers[i] = *number;
  }
  if (args.positional.size() == 1) std::swap(numbers[0], numbers[1]);
  const auto [start, stop, step] = numbers;
  if (step == 0) fail("range() arg 3 must not be zero");
  // Jinja's sandbox allows as many.
  constexpr std::int64_t kMaxRange = 100'000;
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(items.size()) == kMaxRange) {
      fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    }
    budget.step();
    items.push_back({i});
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(std::move(items), budget);
}

std::vector<std::pair<Value, Value>> pairs_of(const Args& args, Budget& budget) {
  std::vector<std::pair<Value, Value>> items;
  if (args.positional.size() > 1) fail("dict expected at most 1 argument");
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (const Dict* dict = source.dict()) {
      items = dict->items;
    } else {
      const ListPtr pairs = iterate(source, budget);
      for (const Value& pair : pairs->items) {
        const ListPtr two = iterate(pair, budget);
        if (two->items.size() != 2) fail("dict expects pairs of a key and a value");
        items.emplace_back(two->items[0], two->items[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) items.emplace_back(make_text(name, budget), value);
  return items;
}

Value namespace_function(const Args& args, Environment& environment) {
  environment.budget.step(8);
  auto space = std::make_unique<Namespace>();
  for (const auto& [key, value] : pairs_of(args, environment.budget)) {
    space->set(to_text(key, environment.budget), value);
  }
  environment.namespaces.push_back(std::move(space));
  return {environment.namespaces.back().get()};
}

Value strftime_function(const Args& args, Budget& budget) {
  const std::string format = text_argument(args, 0, "format", "", budget);
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[1024];
  const std::size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  if (size == 0 && !format.empty()) fail("strftime_now: the date is too long");
  return make_text(std::string(buffer, size), budget);
}

Value joiner_function(const Args& args, Budget& budget) {
  auto joiner = std::make_shared<Function>();
  joiner->kind = Function::Kind::joiner;
  joiner->name = "joiner";
  joiner->self = make_text(text_argument(args, 0, "sep", ", ", budget), budget);
  return {std::move(joiner)};
}

constexpr std::string_view kGlobals[] = {"range",           "namespace",    "dict",
                                         "raise_exception", "strftime_now", "joiner"};

}  // namespace

void check_arguments(const Builtin& builtin, const Args& args) {
  if (builtin.parameters == "*") return;
  std::vector<std::string_view> names;
  for (std::size_t at = 0; at < builtin.parameters.size();) {
    const std::size_t space = std::min(builtin.parameters.find(' ', at), builtin.parameters.size());
    names.push_back(builtin.parameters.substr(at, space - at));
    at = space + 1;
  }
  if (args.positional.size() > names.size()) {
    fail(std::string(builtin.name) + " takes at most " + std::to_string(names.size()) + " arguments, got " +
         std::to_string(args.positional.size()));
  }
  for (const auto& [name, value] : args.named) {
    const auto known = std::find(names.begin(), names.end(), name);
    if (known == names.end()) fail(std::string(builtin.name) + " has no argument '" + name + "'");
    if (static_cast<std::size_t>(known - names.begin()) < args.positional.size()) {
      fail(std::string(builtin.name) + " got multiple values for argument '" + name + "'");
    }
  }
}

std::string text_argument(const Args& args, std::size_t position, std::string_view name,
                          std::string_view otherwise, Budget& budget) {
  const Value* value = args.find(position, name);
  return value == nullptr ? std::string(otherwise) : to_text(*value, budget);
}

std::int64_t integer_argument(const Args& args, std::size_t position, std::string_view name,
                              std::int64_t otherwise) {
  const Value* value = args.find(position, name);
  if (value == nullptr) return otherwise;
  const auto number = value->integer();
  if (!number) fail(std::string(name) + " must be an integer, not " + type_name(*value));
  return *number;
}

bool bool_argument(const Args& args, std::size_t position, std::string_view name, bool otherwise) {
  const Value* value = args.find(position, name);
  return value == nullptr ? otherwise : truthy(*value);
}

bool is_filter(std::string_view name) {
  return find_filter(name) != nullptr;
}
bool is_test(std::string_view name) {
  return find_test(name) != nullptr;
}

Value apply_filter(std::string_view name, const Value& value, const Args& args, Budget& budget) {
  budget.step();
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) fail("No filter named '" + std::string(name) + "'.");
  check_arguments(*filter, args);
  return filter->function(value, args, budget);
}

bool apply_test(std::string_view name, const Value& value, const Args& args, Budget& budget) {
  budget.step();
  const Builtin* test = find_test(name);
  if (test == nullptr) fail("No test named '" + std::string(name) + "'.");
  check_arguments(*test, args);
  return truthy(test->function(value, args, budget));
}

bool is_global(std::string_view name) {
  return std::find(std::begin(kGlobals), std::end(kGlobals), name) != std::end(kGlobals);
}

Value call_global(std::string_view name, const Args& args, Environment& environment) {
  Budget& budget = environment.budget;
  if (name == "range") return range_function(args, budget);
  if (name == "namespace") return namespace_function(args, environment);
  if (name == "dict") return make_dict(pairs_of(args, budget), budget);
  if (name == "strftime_now") return strftime_function(args, budget);
  if (name == "joiner") return joiner_function(args, budget);
  throw Failure{text_argument(args, 0, "message", "", budget), 0, true};  // raise_exception
}

}  // namespace snug::text::jinja
