// JSON Schema as an expression of the texts that are valid under it; docs/structured-output.md lists what is
// supported.
#pragma once

#include "base/error.h"
#include "base/json.h"
#include "grammar/json_text.h"

namespace snug::grammar {

// Usage errors begin with the place, as "#/properties/x".
Result<ExprId> read_json_schema(Expressions& expressions, JsonText& json, const OrderedJson& schema);

}  // namespace snug::grammar
