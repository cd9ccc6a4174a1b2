#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"

namespace snug::text::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const Depth depth(*this);
  line_ = expression.line;
  if (const auto* node = std::get_if<Constant>(&expression.node)) return node->value;
  if (const auto* node = std::get_if<Name>(&expression.node)) return evaluate_name(*node);
  if (const auto* node = std::get_if<Postfix>(&expression.node))
    return evaluate_postfix(*node, evaluate(*node->base));
  if (const auto* node = std::get_if<Compare>(&expression.node)) return {evaluate_compare(*node)};
  if (const auto* node = std::get_if<Logic>(&expression.node)) return evaluate_logic(*node);
  if (const auto* node = std::get_if<Unary>(&expression.node)) return evaluate_unary(*node);
  if (const auto* node = std::get_if<Concat>(&expression.node)) return evaluate_concat(*node);
  if (const auto* node = std::get_if<Conditional>(&expression.node)) return evaluate_conditional(*node);
  if (const auto* node = std::get_if<DictLiteral>(&expression.node)) return evaluate_dict(*node);
  if (const auto* node = std::get_if<Arithmetic>(&expression.node)) {
    Value value = evaluate(*node->first);
    for (const auto& [op, operand] : node->rest) value = arithmetic(op, value, evaluate(*operand), budget());
    return value;
  }
  const auto& node = std::get<ListLiteral>(expression.node);
  std::vector<Value> items = evaluate_all(node.items);
  return node.tuple ? make_tuple(std::move(items), budget()) : make_list(std::move(items), budget());
}

Value Interpreter::evaluate_name(const Name& name) {
  if (const Value* found = lookup(name.name)) return *found;
  if (is_global(name.name)) {
    auto function = std::make_shared<Function>();
    function->name = name.name;
    return {std::move(function)};
  }
  return Value::undefined("'" + name.name + "' is undefined");
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) values.push_back(evaluate(*expression));
  return values;
}

Value Interpreter::evaluate_dict(const DictLiteral& literal) {
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, value] : literal.items) {
    Value k = evaluate(*key);
    items.emplace_back(std::move(k), evaluate(*value));
  }
  return make_dict(std::move(items), budget());
}

Value Interpreter::evaluate_unary(const Unary& unary) {
  const Value value = evaluate(*unary.operand);
  if (unary.op == Unary::Op::logical_not) return {!truthy(value)};
  if (unary.op == Unary::Op::negate) return negate(value);
  refuse_undefined(value);
  if (!value.number()) fail(std::string("bad operand type for unary +: '") + type_name(value) + "'");
  return value.is<bool>() ? Value{*value.integer()} : value;
}

Value Interpreter::evaluate_concat(const Concat& concat) {
  std::string out;
  for (const ExpressionPtr& part : concat.parts) {
    out += to_text(evaluate(*part), budget());
    budget().check_text(static_cast<std::int64_t>(out.size()));
  }
  return make_text(std::move(out), budget());
}

bool Interpreter::evaluate_compare(const Compare& comparison) {
  Value left = evaluate(*comparison.first);
  for (const auto& [op, operand] : comparison.rest) {
    Value right = evaluate(*operand);
    if (!compare(op, left, right, budget())) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_logic(const Logic& logic) {
  Value value;
  for (const ExpressionPtr& operand : logic.operands) {
    value = evaluate(*operand);
    if (truthy(value) != logic.all) return value;
  }
  return value;
}

Value Interpreter::evaluate_conditional(const Conditional& conditional) {
  if (truthy(evaluate(*conditional.condition))) return evaluate(*conditional.then);
  if (conditional.otherwise) return evaluate(*conditional.otherwise);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Value Interpreter::evaluate_postfix(const Postfix& postfix, Value value) {
  for (const PostfixOp& op : postfix.ops) value = evaluate_op(op, value);
  return value;
}

Value Interpreter::evaluate_or_none(const ExpressionPtr& expression) {
  return expression ? evaluate(*expression) : Value{None{}};
}

Value Interpreter::evaluate_op(const PostfixOp& op, const Value& value) {
  budget().step();
  line_ = op.line;
  switch (op.kind) {
    case PostfixOp::Kind::attribute:
      return attribute(value, op.name, budget());
    case PostfixOp::Kind::item:
      return item(value, evaluate(*op.first), budget());
    case PostfixOp::Kind::slice: {
      const Value first = evaluate_or_none(op.first), last = evaluate_or_none(op.last);
      return slice(value, first, last, evaluate_or_none(op.step), budget());
    }
    case PostfixOp::Kind::call:
      return call(value, evaluate_arguments(op.arguments));
    case PostfixOp::Kind::filter:
      return apply_filter(op.name, value, evaluate_arguments(op.arguments), budget());
    case PostfixOp::Kind::test:
      return {apply_test(op.name, value, evaluate_arguments(op.arguments), budget()) != op.negate};
  }
  return {};
}

Args Interpreter::evaluate_arguments(const CallArguments& arguments) {
  Args args;
  args.positional = evaluate_all(arguments.positional);
  for (const auto& [name, value] : arguments.named) args.named.emplace_back(name, evaluate(*value));
  if (arguments.star) {
    const ListPtr more = iterate(evaluate(*arguments.star), budget());
    args.positional.insert(args.positional.end(), more->items.begin(), more->items.end());
  }
  if (arguments.star_star) {
    const Value more = evaluate(*arguments.star_star);
    if (more.dict() == nullptr)
      fail(std::string("argument after ** must be a mapping, not ") + type_name(more));
    for (const auto& [key, value] : more.dict()->items) {
      if (key.text() == nullptr) fail("keywords must be strings");
      args.named.emplace_back(*key.text(), value);
    }
  }
  return args;
}

Value Interpreter::call(const Value& function, Args args) {
  refuse_undefined(function);
  const auto* pointer = function.get<FunctionPtr>();
  if (pointer == nullptr) fail(std::string("'") + type_name(function) + "' object is not callable");
  Function& f = **pointer;
  switch (f.kind) {
    case Function::Kind::global:
      return call_global(f.name, args, environment_);
    case Function::Kind::method:
      return call_method(f.self, f.name, args, budget());
    case Function::Kind::macro:
      return call_macro(f, std::move(args));
    case Function::Kind::joiner:
      if (std::exchange(f.used, true)) return f.self;
      return make_text("", budget());
  }
  return {};
}

}  // namespace snug::text::jinja
