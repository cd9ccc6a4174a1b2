#include "text/jinja_parser.h"

#include <algorithm>

namespace snug::text::jinja {

Block parse_template(std::string_view source, int max_depth) {
  return Parser(tokenize(source), max_depth).parse_all();
}

Token Parser::next() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

void Parser::unexpected(std::string_view wanted) const {
  const Token& token = current();
  std::string got = "'" + token.text + "'";
  if (token.type == Token::Type::end) got = "the end of the template";
  if (token.type == Token::Type::block_end) got = "'%}'";
  if (token.type == Token::Type::variable_end) got = "'}}'";
  throw Failure{"expected " + std::string(wanted) + ", got " + got, token.line};
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected("'" + std::string(op) + "'");
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected("'" + std::string(name) + "'");
}

std::string Parser::expect_identifier() {
  if (current().type != Token::Type::name) unexpected("a name");
  return next().text;
}

void Parser::expect_block_end() {
  if (current().type != Token::Type::block_end) unexpected("'%}'");
  next();
}

Block Parser::parse_all() {
  Block block = parse_block({});
  if (current().type != Token::Type::end) {
    throw Failure{"unexpected tag '" + current().text + "'", current().line};
  }
  return block;
}

Block Parser::parse_block(std::initializer_list<std::string_view> ends) {
  Nest nest(*this);
  Block block;
  while (current().type != Token::Type::end) {
    const int line = current().line;
    if (current().type == Token::Type::data) {
      block.push_back({Literal{next().text}, line});
    } else if (current().type == Token::Type::variable_begin) {
      next();
      ExpressionPtr value = parse_tuple(true, false);
      if (current().type != Token::Type::variable_end) unexpected("'}}'");
      next();
      block.push_back({Output{std::move(value)}, line});
    } else {
      next();  // {%
      if (current().type != Token::Type::name) unexpected("a tag name");
      if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return block;
      if (current().text.starts_with("end") || current().text.starts_with("el")) {
        throw Failure{"unexpected tag '" + current().text + "'", current().line};
      }
      block.push_back(parse_statement());
      block.back().line = line;
    }
  }
  if (ends.size() > 0) unexpected("the tag '" + std::string(*(ends.end() - 1)) + "'");
  return block;
}

Block Parser::parse_body(std::string_view end) {
  expect_block_end();
  Block body = parse_block({end});
  next();
  expect_block_end();
  return body;
}

Statement Parser::parse_statement() {
  const Token tag = next();
  if (tag.text == "if") return {parse_if()};
  if (tag.text == "for") return {parse_for()};
  if (tag.text == "set") return parse_set();
  if (tag.text == "macro") {
    auto macro = parse_macro();
    return {MacroStatement{std::move(macro)}};
  }
  if (tag.text == "call") return {parse_call_block()};
  if (tag.text == "with") return {parse_with()};
  if (tag.text == "filter") {
    FilterBlock block;
    block.filters = parse_filters();
    block.body = parse_body("endfilter");
    return {std::move(block)};
  }
  if (tag.text == "generation") {  // marks the assistant's part for training; only its scope matters here
    With block;
    block.body = parse_body("endgeneration");
    return {std::move(block)};
  }
  if (tag.text == "break" || tag.text == "continue") {
    expect_block_end();
    if (tag.text == "break") return {Break{}};
    return {Continue{}};
  }
  throw Failure{"the tag '" + tag.text + "' is not supported", tag.line};
}

If Parser::parse_if() {
  If statement;
  for (;;) {
    ExpressionPtr condition = parse_tuple(false, false);
    expect_block_end();
    Block body = parse_block({"elif", "else", "endif"});
    statement.branches.emplace_back(std::move(condition), std::move(body));
    const Token tag = next();
    if (tag.text == "elif") continue;
    if (tag.text == "else") {
      statement.otherwise = parse_body("endif");
    } else {
      expect_block_end();
    }
    return statement;
  }
}

For Parser::parse_for() {
  For statement;
  statement.target = parse_target(true);
  expect_name("in");
  statement.items = parse_tuple(false, false);
  if (skip_name("if")) statement.filter = parse_expression();
  if (is_name("recursive")) throw Failure{"recursive loops are not supported", current().line};
  expect_block_end();
  statement.body = parse_block({"else", "endfor"});
  if (next().text == "else") {
    statement.otherwise = parse_body("endfor");
  } else {
    expect_block_end();
  }
  return statement;
}

Statement Parser::parse_set() {
  Target target = parse_target(true);
  if (skip_op("=")) {
    ExpressionPtr value = parse_tuple(true, false);
    expect_block_end();
    return {Set{std::move(target), std::move(value)}};
  }
  SetBlock block;
  block.target = std::move(target);
  if (skip_op("|")) block.filters = parse_filters();
  block.body = parse_body("endset");
  return {std::move(block)};
}

std::unique_ptr<Macro> Parser::parse_macro() {
  auto macro = std::make_unique<Macro>();
  macro->name = expect_identifier();
  parse_parameters(*macro);
  const bool outer_varargs = std::exchange(uses_varargs_, false),
             outer_kwargs = std::exchange(uses_kwargs_, false);
  macro->body = parse_body("endmacro");
  macro->takes_varargs = std::exchange(uses_varargs_, outer_varargs);
  macro->takes_kwargs = std::exchange(uses_kwargs_, outer_kwargs);
  return macro;
}

void Parser::parse_parameters(Macro& macro) {
  expect_op("(");
  while (!is_op(")")) {
    if (!macro.parameters.empty()) {
      expect_op(",");
      if (is_op(")")) break;
    }
    Macro::Parameter parameter;
    parameter.name = expect_identifier();
    if (skip_op("=")) {
      parameter.fallback = parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
      throw Failure{"a parameter without a default follows one with a default", current().line};
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

CallBlock Parser::parse_call_block() {
  CallBlock block;
  block.caller = std::make_unique<Macro>();
  block.caller->name = "caller";
  if (is_op("(")) parse_parameters(*block.caller);
  block.call = parse_expression();
  const auto* postfix = std::get_if<Postfix>(&block.call->node);
  if (postfix == nullptr || postfix->ops.back().kind != PostfixOp::Kind::call) {
    throw Failure{"expected a call", block.call->line};
  }
  block.caller->takes_varargs = block.caller->takes_kwargs = true;  // what a body does not name it ignores
  block.caller->body = parse_body("endcall");
  return block;
}

With Parser::parse_with() {
  With block;
  while (current().type != Token::Type::block_end) {
    if (!block.values.empty()) expect_op(",");
    Target target = parse_one_target();
    expect_op("=");
    block.values.emplace_back(std::move(target), parse_expression());
  }
  block.body = parse_body("endwith");
  return block;
}

Target Parser::parse_one_target() {
  Nest nest(*this);
  if (skip_op("(")) {
    Target target = parse_target(true);
    expect_op(")");
    return target;
  }
  Target target;
  const int line = current().line;
  target.name = expect_identifier();
  for (const std::string_view reserved :
       {"true", "false", "none", "True", "False", "None", "not", "and", "or", "in"}) {
    if (target.name == reserved) throw Failure{"cannot assign to '" + target.name + "'", line};
  }
  if (skip_op(".")) target.attribute = expect_identifier();
  return target;
}

Target Parser::parse_target(bool may_be_tuple) {
  Target first = parse_one_target();
  if (!may_be_tuple || !is_op(",")) return first;
  Target target;
  target.parts.push_back(std::move(first));
  while (skip_op(",")) {
    if (current().type != Token::Type::name && !is_op("(")) break;
    if (is_name("in")) break;
    target.parts.push_back(parse_one_target());
  }
  return target;
}

Postfix Parser::parse_filters() {
  Postfix chain;
  do {
    PostfixOp op{PostfixOp::Kind::filter};
    op.line = current().line;
    parse_filter(op);
    chain.ops.push_back(std::move(op));
  } while (skip_op("|"));
  return chain;
}

}  // namespace snug::text::jinja
