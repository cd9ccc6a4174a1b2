// From tokens to a template's tree.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace snug::text::jinja {

// Throws Failure with the line; deeper nesting than max_depth is one.
Block parse_template(std::string_view source, int max_depth);

// The parser proper; expressions are in jinja_parser_expression.cc.
class Parser {
 public:
  Parser(std::vector<Token> tokens, int max_depth) : tokens_(std::move(tokens)), max_depth_(max_depth) {}
  Block parse_all();

 private:
  // One level of nesting.
  class Nest;

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token next();
  bool is_op(std::string_view op) const { return current().type == Token::Type::op && current().text == op; }
  bool is_name(std::string_view name) const {
    return current().type == Token::Type::name && current().text == name;
  }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_identifier();
  void expect_block_end();
  [[noreturn]] void unexpected(std::string_view wanted) const;

  // Statements up to a tag named in `ends` (whose name is then the current token), or the end of the
  // template.
  Block parse_block(std::initializer_list<std::string_view> ends);
  Block parse_body(std::string_view end);  // {% x … %} body {% end %}, from the first %} on
  Statement parse_statement();
  If parse_if();
  For parse_for();
  Statement parse_set();
  std::unique_ptr<Macro> parse_macro();
  CallBlock parse_call_block();
  With parse_with();
  void parse_parameters(Macro& macro);
  Target parse_target(bool may_be_tuple);
  Target parse_one_target();

  ExpressionPtr parse_expression();  // with the inline if
  ExpressionPtr parse_tuple(bool with_conditional, bool parenthesized);
  bool at_tuple_end() const;
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_number();
  // .x [x] (x) after an expression, then |filter and `is test` if asked for.
  ExpressionPtr parse_postfix(ExpressionPtr base, bool with_filters);
  void parse_subscript(PostfixOp& op);
  void parse_filter(PostfixOp& op);
  void parse_test(PostfixOp& op);
  CallArguments parse_arguments();
  Postfix parse_filters();  // the chain of a filter block or a block set
  ExpressionPtr make(Expression&& expression, int line);
  template <class Parse>
  ExpressionPtr parse_arithmetic(std::initializer_list<std::string_view> ops, Parse&& parse);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool uses_varargs_ = false, uses_kwargs_ = false;  // seen in the macro being parsed
  int max_depth_;
};

class Parser::Nest {
 public:
  explicit Nest(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > parser_.max_depth_) {
      --parser_.depth_;  // the destructor of a half-made guard does not run
      throw Failure{"nested too deeply", parser_.current().line};
    }
  }
  ~Nest() { --parser_.depth_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

 private:
  Parser& parser_;
};

}  // namespace snug::text::jinja
