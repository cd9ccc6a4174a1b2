// Runs a parsed template.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"

namespace snug::text::jinja {

// Names of a block; a loop's body and a macro have one of their own.
struct Scope {
  std::map<std::string, Value, std::less<>> values;
  std::shared_ptr<Scope> parent;
};

// One render. Throws Failure; `line()` is then where.
class Interpreter {
 public:
  explicit Interpreter(Budget& budget)
      : environment_{budget, {}}, root_(std::make_shared<Scope>()), scope_(root_) {}
  ~Interpreter();
  void define(std::string name, Value value) {
    root_->values.insert_or_assign(std::move(name), std::move(value));
  }
  std::string run(const Block& block);
  int line() const { return line_; }

 private:
  enum class Flow { normal, leave_loop, next_item };
  class Depth;     // one level of evaluation
  class NewScope;  // a scope inside the current one
  class Capture;   // collects output

  Budget& budget() { return environment_.budget; }
  void write(std::string_view text);

  // Statements (jinja_interpreter.cc).
  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow execute_if(const If& statement);
  Flow execute_for(const For& statement);
  void execute_set_block(const SetBlock& statement);
  Flow execute_filter_block(const FilterBlock& statement);
  void execute_call_block(const CallBlock& statement);
  Flow execute_with(const With& statement);
  void assign(const Target& target, Value value, int depth = 0);
  Value* lookup(std::string_view name);
  std::shared_ptr<Function> make_macro(const Macro& macro);
  Value call_macro(const Function& function, Args args);

  // Expressions (jinja_interpreter_expression.cc).
  Value evaluate(const Expression& expression);
  Value evaluate_name(const Name& name);
  Value evaluate_dict(const DictLiteral& literal);
  Value evaluate_unary(const Unary& unary);
  Value evaluate_concat(const Concat& concat);
  bool evaluate_compare(const Compare& compare);
  Value evaluate_logic(const Logic& logic);
  Value evaluate_conditional(const Conditional& conditional);
  Value evaluate_postfix(const Postfix& postfix, Value value);
  Value evaluate_op(const PostfixOp& op, const Value& value);
  Value evaluate_or_none(const ExpressionPtr& expression);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions);
  Args evaluate_arguments(const CallArguments& arguments);
  Value call(const Value& function, Args args);

  Environment environment_;
  std::shared_ptr<Scope> root_, scope_;
  std::shared_ptr<const Function> caller_for_call_;  // the body of a call block, handed to the macro it calls
  std::string out_;
  std::int64_t captured_ = 0;  // bytes in the outputs set aside
  int depth_ = 0;
  int line_ = 0;
};

class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter);
  ~Depth() { --interpreter_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Interpreter& interpreter_;
};

class Interpreter::NewScope {
 public:
  NewScope(Interpreter& interpreter, std::shared_ptr<Scope> parent)
      : interpreter_(interpreter), outer_(interpreter.scope_) {
    interpreter.scope_ = std::make_shared<Scope>();
    interpreter.scope_->parent = std::move(parent);
  }
  explicit NewScope(Interpreter& interpreter) : NewScope(interpreter, interpreter.scope_) {}
  ~NewScope() { interpreter_.scope_ = std::move(outer_); }
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> outer_;
};

}  // namespace snug::text::jinja
