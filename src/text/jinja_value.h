// Values of the template language, with Python's meaning, and the budget that bounds them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"

namespace snug::text::jinja {

// Thrown inside the engine only; ChatTemplate turns it into an Error.
struct Failure {
  std::string message;
  int line = 0;         // 0: the line being evaluated
  bool raised = false;  // by the template itself (raise_exception)
};
[[noreturn]] void fail(std::string message);

// Counts what one render uses. Every value it makes holds a Charge, so the budget must outlive them.
class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits) {}
  void step(std::int64_t count = 1);
  void check_text(std::int64_t bytes) const;  // the size of any one string, or of the output
  void check_depth(int depth) const;          // nesting of a value
  void check_items(std::int64_t count);  // before a list of this many is built; counts as that many steps
  void hold(std::int64_t bytes);
  void release(std::int64_t bytes) { held_ -= bytes; }
  const TemplateLimits& limits() const { return limits_; }

 private:
  TemplateLimits limits_;
  std::int64_t steps_ = 0;
  std::int64_t held_ = 0;
};

// Bytes of a budget, given back when the value dies. Default: charged to nobody (constants, inputs).
class Charge {
 public:
  Charge() = default;
  Charge(Budget& budget, std::int64_t bytes) : budget_(&budget), bytes_(bytes) { budget.hold(bytes); }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() {
    if (budget_ != nullptr) budget_->release(bytes_);
  }

 private:
  Budget* budget_ = nullptr;
  std::int64_t bytes_ = 0;
};

struct Undefined {
  std::shared_ptr<const std::string> hint;  // the error if it is used
};
struct None {};
struct Text;
struct List;
struct Dict;
struct Loop;
struct Function;
struct Namespace;
using TextPtr = std::shared_ptr<const Text>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;
using LoopPtr = std::shared_ptr<Loop>;
using FunctionPtr = std::shared_ptr<Function>;

// Immutable but for Loop, Function's counter and Namespace. Lists and dicts cannot contain themselves; a
// namespace can, so the interpreter owns namespaces and values only point at them.
struct Value {
  using Data = std::variant<Undefined, None, bool, std::int64_t, double, TextPtr, ListPtr, DictPtr, LoopPtr,
                            FunctionPtr, Namespace*>;
  Data data;

  Value() = default;
  Value(Data d) : data(std::move(d)) {}  // NOLINT: implicit by design
  static Value undefined(std::string hint);

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data);
  }
  template <class T>
  const T* get() const {
    return std::get_if<T>(&data);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  const std::string* text() const;  // null if it is not a string
  const List* list() const;         // a list or tuple
  const Dict* dict() const;
  std::optional<std::int64_t> integer() const;  // bools too, as in Python
  std::optional<double> number() const;         // int, bool or float
};

struct Text {
  std::string value;
  Charge charge;
  Text(std::string v, Budget& budget);
  explicit Text(std::string v) : value(std::move(v)) {}
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
  Charge charge;
  List(std::vector<Value> v, bool is_tuple, Budget& budget);
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // keys are distinct
  int depth = 1;
  Charge charge;
  Dict(std::vector<std::pair<Value, Value>> v, Budget& budget);
  const Value* find(std::string_view key, Budget& budget) const;
};

struct Loop {
  ListPtr items;
  std::int64_t index = 0;
  std::optional<std::string> last_changed;  // what loop.changed() saw, printed
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

struct Macro;  // jinja_ast.h
struct Scope;  // jinja_interpreter.h
struct Function {
  enum class Kind { global, method, macro, joiner };
  Kind kind = Kind::global;
  std::string name;
  Value self;                    // a method's object; a joiner's separator
  const Macro* macro = nullptr;  // owned by the template
  std::weak_ptr<Scope> scope;    // where the macro was defined; weak, since that scope holds the macro
  std::shared_ptr<const Function> caller;
  bool used = false;  // a joiner's state
};

// What a call or filter was given.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at this position or of this name; null if not given.
  const Value* find(std::size_t position, std::string_view name) const;
};

Value make_text(std::string value, Budget& budget);
Value make_list(std::vector<Value> items, Budget& budget);
Value make_tuple(std::vector<Value> items, Budget& budget);
// Later values of equal keys win, at the first one's place.
Value make_dict(std::vector<std::pair<Value, Value>> items, Budget& budget);
Value from_json(const OrderedJson& json, Budget& budget, int depth = 0);

const char* type_name(const Value& value);  // Python's: str, int, NoneType, …
std::string described(const Value& value);  // as Jinja's messages: 'dict object', 'None'
int depth_of(const Value& value);
bool truthy(const Value& value);
std::string to_text(const Value& value, Budget& budget);  // Python's str()
std::string repr(const Value& value, Budget& budget);     // Python's repr()
std::string format_double(double value);                  // Python's repr of a float
bool equal(const Value& a, const Value& b, Budget& budget);
bool less(const Value& a, const Value& b, Budget& budget,
          std::string_view op = "<");  // fails if not comparable
// The items a for loop would visit: keys of a dict, characters of a string.
ListPtr iterate(const Value& value, Budget& budget);

}  // namespace snug::text::jinja
