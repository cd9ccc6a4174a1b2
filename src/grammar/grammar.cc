#include "grammar/grammar.h"

#include <fmt/format.h>

#include "grammar/compiled.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "grammar/limits.h"
#include "grammar/regex.h"

namespace snug::grammar {
namespace {

Error about(std::string_view what, Error error) {
  error.message = fmt::format("{}: {}", what, error.message);
  return error;
}

Result<GrammarPtr> compile(std::string_view what, const Expressions& expressions,
                           const Result<ExprId>& root) {
  if (!root.ok()) return about(what, root.error());
  auto automaton = Automaton::make(expressions, *root);
  if (!automaton.ok()) return about(what, automaton.error());
  return GrammarPtr(std::make_shared<const Grammar>(std::move(*automaton)));
}

}  // namespace

Result<GrammarPtr> compile_regex(std::string_view pattern) {
  Expressions expressions;
  const auto root = parse_regex(expressions, pattern, TextForm::plain, Extent::whole);
  return compile("regular expression", expressions, root);
}

Result<GrammarPtr> compile_json_schema(const OrderedJson& schema) {
  Expressions expressions;
  JsonText json(expressions);
  const auto root = read_json_schema(expressions, json, schema);
  return compile("JSON schema", expressions, root);
}

Result<GrammarPtr> compile_json_object() {
  Expressions expressions;
  return compile("JSON object", expressions, JsonText(expressions).object());
}

Result<GrammarPtr> compile_choice(const std::vector<std::string>& texts) {
  Expressions expressions;
  std::vector<ExprId> parts;
  std::size_t bytes = 0;
  for (const auto& text : texts) {
    bytes += text.size();
    if (bytes > kMaxChoiceBytes) {
      return Error{ErrorCode::usage,
                   fmt::format("choice: the texts have more than {} bytes", kMaxChoiceBytes),
                   "offer fewer or shorter ones"};
    }
    parts.push_back(expressions.literal(text));
  }
  if (parts.empty())
    return Error{ErrorCode::usage, "choice: there is no text to choose", "offer at least one"};
  return compile("choice", expressions, expressions.alternatives(std::move(parts)));
}

Result<GrammarPtr> compile_tool_calls(const std::vector<ToolSignature>& tools, bool parallel) {
  if (tools.empty()) return Error{ErrorCode::usage, "tools: there is none to call", "offer at least one"};
  Expressions e;
  JsonText json(e);
  std::vector<ExprId> calls;
  for (const auto& tool : tools) {
    const auto& schema = tool.parameters;
    Result<ExprId> arguments = json.object();
    if (!schema.is_null() && !(schema.is_object() && schema.empty())) {
      arguments = read_json_schema(e, json, schema);
      if (!arguments.ok()) return about(fmt::format("tool {}", tool.name), arguments.error());
    }
    calls.push_back(e.concat({json.name(tool.name), e.literal(", \"arguments\": "), *arguments}));
  }
  const ExprId call = e.concat({e.literal("<tool_call>\n{\"name\": "), e.alternatives(std::move(calls)),
                                e.literal("}\n</tool_call>")});
  const ExprId more = parallel ? e.repeat(e.concat({e.literal("\n"), call}), 0, kUnbounded) : e.empty();
  return compile("tools", e, e.concat({call, more}));
}

}  // namespace snug::grammar
