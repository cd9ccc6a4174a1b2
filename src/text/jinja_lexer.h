// Splits a template into text and the tokens of its tags (trim_blocks and lstrip_blocks on, as Jinja does
// it).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace snug::text::jinja {

struct Token {
  enum class Type {
    data,  // text between tags
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,   // text is the value, escapes resolved
    integer,  // text is the value in decimal
    real,
    op,
    end,
  };
  Type type = Type::end;
  std::string text;
  int line = 1;
};

// Throws Failure with the line. The last token is of type end.
std::vector<Token> tokenize(std::string_view source);

}  // namespace snug::text::jinja
