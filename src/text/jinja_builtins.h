// Everything a template can call by name: methods, filters, tests and global functions.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "text/jinja_value.h"

namespace snug::text::jinja {

// What globals need from the render beside its budget.
struct Environment {
  Budget& budget;
  std::vector<std::unique_ptr<Namespace>> namespaces;
};

bool has_method(const Value& object, std::string_view name);
bool is_mutator(const Value& object, std::string_view name);  // would change it: the sandbox forbids that
Value call_method(const Value& object, std::string_view name, const Args& args, Budget& budget);
std::optional<Value> loop_attribute(const Loop& loop, std::string_view name);  // index, first, length, …

Value apply_filter(std::string_view name, const Value& value, const Args& args, Budget& budget);
bool apply_test(std::string_view name, const Value& value, const Args& args, Budget& budget);
bool is_filter(std::string_view name);
bool is_test(std::string_view name);

bool is_global(std::string_view name);
Value call_global(std::string_view name, const Args& args, Environment& environment);

// As Python's json.dumps(ensure_ascii=False, …). Arguments: ensure_ascii, indent, separators, sort_keys.
Value filter_tojson(const Value& value, const Args& args, Budget& budget);

// A row of a table of functions. `parameters`: names by position, separated by spaces; "*" takes anything.
struct Builtin {
  std::string_view name;
  Value (*function)(const Value& value, const Args& args, Budget& budget);
  std::string_view parameters = "";
};
void check_arguments(const Builtin& builtin, const Args& args);

// The parts of the filter table (jinja_filters_text.cc, jinja_filters_sequence.cc).
std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();

// Arguments of a kind, or a default; fail with the argument's name if it is another kind.
std::string text_argument(const Args& args, std::size_t position, std::string_view name,
                          std::string_view otherwise, Budget& budget);
std::int64_t integer_argument(const Args& args, std::size_t position, std::string_view name,
                              std::int64_t otherwise);
bool bool_argument(const Args& args, std::size_t position, std::string_view name, bool otherwise);

// Shared by the methods and the filters of the same name.
Value replace_text(const std::string& text, const Args& args, Budget& budget);
Value pad_text(const std::string& text, std::int64_t width, char side, const std::string& fill,
               Budget& budget);
Value join_values(const std::vector<Value>& items, std::string_view separator, bool strict, Budget& budget);

}  // namespace snug::text::jinja
