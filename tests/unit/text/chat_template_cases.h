// What the tables of template tests share: the variables, and a template with what Jinja makes of it.
#pragma once

#include "text/chat_template.h"

namespace snug::text {

inline const OrderedJson kVariables = OrderedJson::parse(R"~({
 "s": "hello World",
 "u": "héé 世界 😀",
 "n": null,
 "t": true,
 "i": 7,
 "f": 2.5,
 "l": [3, 1, 2],
 "d": {"b": 1, "a": [1, 2, "x"], "items": "key"},
 "e": "",
 "msgs": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo", "n": 2}, {"role": "user", "content": "bye"}],
 "words": ["b", "A", "c", "a"]})~");

struct Case {
  const char* source;
  const char* expected;
};

}  // namespace snug::text
