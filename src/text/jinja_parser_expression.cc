// Expressions, from the loosest binding to the tightest, in Jinja's order.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "text/jinja_parser.h"

namespace snug::text::jinja {
namespace {

bool contains(std::initializer_list<std::string_view> list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

}  // namespace

ExpressionPtr Parser::make(Expression&& expression, int line) {
  auto pointer = std::make_unique<Expression>(std::move(expression));
  pointer->line = line;
  return pointer;
}

bool Parser::at_tuple_end() const {
  const Token& token = current();
  return token.type == Token::Type::variable_end || token.type == Token::Type::block_end ||
         token.type == Token::Type::end || is_op(")") || is_op("=") || is_name("recursive") || is_name("in");
}

// One expression, or several with commas.
ExpressionPtr Parser::parse_tuple(bool with_conditional, bool parenthesized) {
  const int line = current().line;
  ListLiteral tuple;
  tuple.tuple = true;
  bool comma = false;
  while (!at_tuple_end()) {
    if (!tuple.items.empty() && !comma) break;
    tuple.items.push_back(with_conditional ? parse_expression() : parse_or());
    comma = skip_op(",");
  }
  if (tuple.items.size() == 1 && !comma) return std::move(tuple.items[0]);
  if (tuple.items.empty() && !parenthesized) unexpected("an expression");
  return make({std::move(tuple)}, line);
}

ExpressionPtr Parser::parse_expression() {
  Nest nest(*this);
  const int line = current().line;
  ExpressionPtr value = parse_or();
  int chained = 0;  // x if a if b: each wraps the one before
  while (skip_name("if")) {
    if (++chained > max_depth_) throw Failure{"nested too deeply", line};
    Conditional conditional;
    conditional.condition = parse_or();
    conditional.then = std::move(value);
    if (skip_name("else")) conditional.otherwise = parse_expression();
    value = make({std::move(conditional)}, line);
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  const int line = current().line;
  ExpressionPtr first = parse_and();
  if (!is_name("or")) return first;
  Logic logic;
  logic.operands.push_back(std::move(first));
  while (skip_name("or")) logic.operands.push_back(parse_and());
  return make({std::move(logic)}, line);
}

ExpressionPtr Parser::parse_and() {
  const int line = current().line;
  ExpressionPtr first = parse_not();
  if (!is_name("and")) return first;
  Logic logic;
  logic.all = true;
  logic.operands.push_back(std::move(first));
  while (skip_name("and")) logic.operands.push_back(parse_not());
  return make({std::move(logic)}, line);
}

ExpressionPtr Parser::parse_not() {
  if (!is_name("not")) return parse_compare();
  Nest nest(*this);
  const int line = next().line;
  return make({Unary{Unary::Op::logical_not, parse_not()}}, line);
}

ExpressionPtr Parser::parse_compare() {
  const int line = current().line;
  ExpressionPtr first = parse_sum();
  Compare compare;
  for (;;) {
    std::string op;
    if (current().type == Token::Type::op && contains({"==", "!=", "<", "<=", ">", ">="}, current().text)) {
      op = next().text;
    } else if (skip_name("in")) {
      op = "in";
    } else if (is_name("not") && ahead().type == Token::Type::name && ahead().text == "in") {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    compare.rest.emplace_back(std::move(op), parse_sum());
  }
  if (compare.rest.empty()) return first;
  compare.first = std::move(first);
  return make({std::move(compare)}, line);
}

template <class Parse>
ExpressionPtr Parser::parse_arithmetic(std::initializer_list<std::string_view> ops, Parse&& parse) {
  const int line = current().line;
  ExpressionPtr first = parse();
  Arithmetic arithmetic;
  while (current().type == Token::Type::op && contains(ops, current().text)) {
    std::string op = next().text;
    arithmetic.rest.emplace_back(std::move(op), parse());
  }
  if (arithmetic.rest.empty()) return first;
  arithmetic.first = std::move(first);
  return make({std::move(arithmetic)}, line);
}

ExpressionPtr Parser::parse_sum() {
  return parse_arithmetic({"+", "-"}, [this] { return parse_concat(); });
}

ExpressionPtr Parser::parse_concat() {
  const int line = current().line;
  ExpressionPtr first = parse_product();
  if (!is_op("~")) return first;
  Concat concat;
  concat.parts.push_back(std::move(first));
  while (skip_op("~")) concat.parts.push_back(parse_product());
  return make({std::move(concat)}, line);
}

ExpressionPtr Parser::parse_product() {
  return parse_arithmetic({"*", "/", "//", "%"}, [this] { return parse_power(); });
}

ExpressionPtr Parser::parse_power() {
  return parse_arithmetic({"**"}, [this] { return parse_unary(true); });
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  const int line = current().line;
  ExpressionPtr value;
  if (is_op("-") || is_op("+")) {
    Nest nest(*this);
    const auto op = next().text == "-" ? Unary::Op::negate : Unary::Op::plus;
    value = make({Unary{op, parse_unary(false)}}, line);
  } else {
    value = parse_primary();
  }
  return parse_postfix(std::move(value), with_filters);
}

ExpressionPtr Parser::parse_primary() {
  const int line = current().line;
  switch (current().type) {
    case Token::Type::name: {
      std::string name = next().text;
      if (name == "true" || name == "True") return make({Constant{{true}}}, line);
      if (name == "false" || name == "False") return make({Constant{{false}}}, line);
      if (name == "none" || name == "None") return make({Constant{{None{}}}}, line);
      uses_varargs_ |= name == "varargs";
      uses_kwargs_ |= name == "kwargs";
      return make({Name{std::move(name)}}, line);
    }
    case Token::Type::string: {
      std::string text;
      while (current().type == Token::Type::string) text += next().text;
      return make({Constant{{std::make_shared<const Text>(std::move(text))}}}, line);
    }
    case Token::Type::integer:
    case Token::Type::real:
      return parse_number();
    default:
      break;
  }
  if (skip_op("(")) {
    ExpressionPtr value = parse_tuple(true, true);
    expect_op(")");
    return value;
  }
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  unexpected("an expression");
}

ExpressionPtr Parser::parse_number() {
  const Token token = next();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.type == Token::Type::integer) {
    std::int64_t value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc())
      throw Failure{"integer is too large", token.line};
    return make({Constant{{value}}}, token.line);
  }
  double value = 0;
  // Too large is inf and too small is 0, as strtod and Python have it; from_chars leaves the value alone.
  if (std::from_chars(begin, end, value).ec != std::errc()) value = std::strtod(begin, nullptr);
  return make({Constant{{value}}}, token.line);
}

ExpressionPtr Parser::parse_list() {
  const int line = next().line;
  ListLiteral list;
  while (!is_op("]")) {
    if (!list.items.empty()) {
      expect_op(",");
      if (is_op("]")) break;
    }
    list.items.push_back(parse_expression());
  }
  expect_op("]");
  return make({std::move(list)}, line);
}

ExpressionPtr Parser::parse_dict() {
  const int line = next().line;
  DictLiteral dict;
  while (!is_op("}")) {
    if (!dict.items.empty()) {
      expect_op(",");
      if (is_op("}")) break;
    }
    ExpressionPtr key = parse_expression();
    expect_op(":");
    dict.items.emplace_back(std::move(key), parse_expression());
  }
  expect_op("}");
  return make({std::move(dict)}, line);
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr base, bool with_filters) {
  Postfix chain;
  const int line = current().line;
  bool filtered = false;  // a subscript cannot follow a filter
  for (;;) {
    PostfixOp op{};
    op.line = current().line;
    if (!filtered && skip_op(".")) {
      op.kind = PostfixOp::Kind::attribute;
      if (current().type == Token::Type::integer) {
        op.kind = PostfixOp::Kind::item;
        op.first = parse_number();
      } else {
        op.name = expect_identifier();
      }
    } else if (!filtered && skip_op("[")) {
      parse_subscript(op);
    } else if (is_op("(")) {
      op.kind = PostfixOp::Kind::call;
      op.arguments = parse_arguments();
    } else if (with_filters && skip_op("|")) {
      op.kind = PostfixOp::Kind::filter;
      parse_filter(op);
      filtered = true;
    } else if (with_filters && skip_name("is")) {
      op.kind = PostfixOp::Kind::test;
      parse_test(op);
      filtered = true;
    } else {
      break;
    }
    chain.ops.push_back(std::move(op));
  }
  if (chain.ops.empty()) return base;
  chain.base = std::move(base);
  return make({std::move(chain)}, line);
}

void Parser::parse_subscript(PostfixOp& op) {
  op.kind = PostfixOp::Kind::item;
  if (!is_op(":")) op.first = parse_expression();
  if (is_op(":")) {
    op.kind = PostfixOp::Kind::slice;
    next();
    if (!is_op("]") && !is_op(":")) op.last = parse_expression();
    if (skip_op(":") && !is_op("]")) op.step = parse_expression();
  }
  expect_op("]");
}

void Parser::parse_filter(PostfixOp& op) {
  op.name = expect_identifier();
  while (skip_op(".")) op.name += "." + expect_identifier();
  if (is_op("(")) op.arguments = parse_arguments();
}

void Parser::parse_test(PostfixOp& op) {
  op.negate = skip_name("not");
  op.name = expect_identifier();
  while (skip_op(".")) op.name += "." + expect_identifier();
  if (is_op("(")) {
    op.arguments = parse_arguments();
    return;
  }
  // `x is divisibleby 3`: one argument without parentheses.
  const Token& token = current();
  const bool word = token.type == Token::Type::name &&
                    !contains({"else", "or", "and", "is", "if", "in", "not"}, token.text);
  if (word || token.type == Token::Type::string || token.type == Token::Type::integer ||
      token.type == Token::Type::real || is_op("[") || is_op("{")) {
    op.arguments.positional.push_back(parse_postfix(parse_primary(), false));
  } else if (is_name("is")) {
    throw Failure{"tests cannot be chained with 'is'", token.line};
  }
}

CallArguments Parser::parse_arguments() {
  CallArguments arguments;
  expect_op("(");
  bool first = true;
  while (!is_op(")")) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    first = false;
    if (skip_op("**")) {
      arguments.star_star = parse_expression();
    } else if (skip_op("*")) {
      arguments.star = parse_expression();
    } else if (current().type == Token::Type::name && ahead().type == Token::Type::op &&
               ahead().text == "=") {
      std::string name = next().text;
      next();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!arguments.named.empty() || arguments.star) {
        throw Failure{"a positional argument follows a named one", current().line};
      }
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return arguments;
}

}  // namespace snug::text::jinja
