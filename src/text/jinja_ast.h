// A parsed template. Chains (a + b + c, x.y.z|f) are flat lists, so the depth of the tree is the depth of
// nesting.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja_value.h"

namespace snug::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
  bool tuple = false;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct Unary {
  enum class Op { logical_not, negate, plus } op;
  ExpressionPtr operand;
};
// first op operand op operand …, left to right; ops are Jinja's: + - * / // % **
struct Arithmetic {
  ExpressionPtr first;
  std::vector<std::pair<std::string, ExpressionPtr>> rest;
};
struct Concat {
  std::vector<ExpressionPtr> parts;
};
// a < b < c: each operand is evaluated once; ops: == != < <= > >= in "not in"
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<std::string, ExpressionPtr>> rest;
};
struct Logic {
  bool all = false;  // and; else or
  std::vector<ExpressionPtr> operands;
};
struct Conditional {
  ExpressionPtr condition, then;
  ExpressionPtr otherwise;  // may be null
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;  // *args, **kwargs; may be null
};
struct PostfixOp {
  enum class Kind { attribute, item, slice, call, filter, test } kind;
  std::string name;  // of an attribute, filter or test
  bool negate = false;
  CallArguments arguments;          // call, filter, test
  ExpressionPtr first, last, step;  // item (first) and slice; may be null
  int line = 0;
};
struct Postfix {
  ExpressionPtr base;  // null in a filter block
  std::vector<PostfixOp> ops;
};

struct Expression {
  std::variant<Constant, Name, ListLiteral, DictLiteral, Unary, Arithmetic, Concat, Compare, Logic,
               Conditional, Postfix>
      node;
  int line = 0;
};

// What is assigned to: a name, an attribute of a namespace, or several of these.
struct Target {
  std::string name, attribute;
  std::vector<Target> parts;
};

struct Statement;
using Block = std::vector<Statement>;

struct Literal {
  std::string text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr items;
  ExpressionPtr filter;  // may be null
  Block body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  Postfix filters;
  Block body;
};
struct FilterBlock {
  Postfix filters;
  Block body;
};
struct Macro {
  struct Parameter {
    std::string name;
    ExpressionPtr fallback;  // may be null
  };
  std::string name;
  std::vector<Parameter> parameters;
  bool takes_varargs = false, takes_kwargs = false;  // the body names them
  Block body;
};
struct MacroStatement {
  std::unique_ptr<Macro> macro;
};
struct CallBlock {
  std::unique_ptr<Macro> caller;
  ExpressionPtr call;  // a Postfix that ends in a call
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Block body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Literal, Output, If, For, Set, SetBlock, FilterBlock, MacroStatement, CallBlock, With, Break,
               Continue>
      node;
  int line = 0;
};

}  // namespace snug::text::jinja
