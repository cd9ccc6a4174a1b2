// Operators, subscripts and attributes, with Python's meaning.
#pragma once

#include <string_view>

#include "text/jinja_value.h"

namespace snug::text::jinja {

Value arithmetic(std::string_view op, const Value& a, const Value& b, Budget& budget);  // + - * / // % **
Value negate(const Value& value);
bool compare(std::string_view op, const Value& a, const Value& b,
             Budget& budget);  // == != < <= > >= in "not in"
bool contains(const Value& container, const Value& item, Budget& budget);

// object[key]: the item, then the attribute; undefined if there is neither.
Value item(const Value& object, const Value& key, Budget& budget);
// object.name: the attribute, then the item.
Value attribute(const Value& object, std::string_view name, Budget& budget);
// object[first:last:step]; none or undefined bounds are open.
Value slice(const Value& object, const Value& first, const Value& last, const Value& step, Budget& budget);

// "%s and %d" % values
std::string percent_format(std::string_view format, const std::vector<Value>& values, Budget& budget);

[[noreturn]] void fail_undefined(const Undefined& undefined);
void refuse_undefined(const Value& value);

}  // namespace snug::text::jinja
