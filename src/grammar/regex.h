// Regular expressions: the part of ECMAScript's and Python's syntax that is a regular language.
#pragma once

#include <string_view>

#include "base/error.h"
#include "grammar/expression.h"

namespace snug::grammar {

// How the characters of a text are written.
enum class TextForm {
  plain,        // UTF-8
  json_string,  // as inside a JSON string: quote, backslash and control characters escaped, one way each
};
enum class Extent {
  whole,   // the pattern describes the whole text; ^ and $ at its ends change nothing
  search,  // anywhere in the text, save where ^ or $ tie it to an end (JSON schema)
};

// The texts that `pattern` matches. Usage errors name the construct and its place.
Result<ExprId> parse_regex(Expressions& expressions, std::string_view pattern, TextForm form, Extent extent);

// One character of the set, written in that form.
ExprId written_characters(Expressions& expressions, const CharSet& set, TextForm form);

}  // namespace snug::grammar
