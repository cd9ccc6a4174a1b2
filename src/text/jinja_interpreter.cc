#include "text/jinja_interpreter.h"

#include "text/jinja_operators.h"

namespace snug::text::jinja {
namespace {

template <class... Fns>
struct Overloaded : Fns... {
  using Fns::operator()...;
};
template <class... Fns>
Overloaded(Fns...) -> Overloaded<Fns...>;

}  // namespace

// Depth of evaluation allowed per level of nesting: a macro that calls itself passes several levels each
// time.
constexpr int kEvaluationDepth = 8;

Interpreter::Depth::Depth(Interpreter& interpreter) : interpreter_(interpreter) {
  interpreter.budget().step();
  if (interpreter.depth_ >= kEvaluationDepth * interpreter.budget().limits().max_depth) {
    fail("the template calls itself too deeply");
  }
  ++interpreter.depth_;
}

class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(std::move(interpreter.out_)) {
    interpreter.out_.clear();
    interpreter.captured_ += static_cast<std::int64_t>(outer_.size());
  }
  ~Capture() {
    interpreter_.captured_ -= static_cast<std::int64_t>(outer_.size());
    interpreter_.out_ = std::move(outer_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Value take() { return make_text(std::move(interpreter_.out_), interpreter_.budget()); }

 private:
  Interpreter& interpreter_;
  std::string outer_;
};

Interpreter::~Interpreter() {
  // Namespaces may refer to each other's values: empty them all before any is freed.
  for (auto& space : environment_.namespaces) space->attributes.clear();
}

std::string Interpreter::run(const Block& block) {
  execute(block);
  return std::move(out_);
}

void Interpreter::write(std::string_view text) {
  budget().check_text(captured_ + static_cast<std::int64_t>(out_.size() + text.size()));
  budget().step(static_cast<std::int64_t>(text.size()) / 256);
  out_ += text;
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  const Depth depth(*this);
  for (const Statement& statement : block) {
    const Flow flow = execute(statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  budget().step();
  line_ = statement.line;
  const auto done = [](auto&&...) { return Flow::normal; };
  return std::visit(
      Overloaded{
          [&](const Literal& node) { return done((write(node.text), 0)); },
          [&](const Output& node) {
            const Value value = evaluate(*node.value);
            write(value.text() != nullptr ? *value.text() : to_text(value, budget()));
            return Flow::normal;
          },
          [&](const If& node) { return execute_if(node); },
          [&](const For& node) { return execute_for(node); },
          [&](const Set& node) { return done((assign(node.target, evaluate(*node.value)), 0)); },
          [&](const SetBlock& node) { return done((execute_set_block(node), 0)); },
          [&](const FilterBlock& node) { return execute_filter_block(node); },
          [&](const MacroStatement& node) {
            scope_->values.insert_or_assign(node.macro->name, Value{make_macro(*node.macro)});
            return Flow::normal;
          },
          [&](const CallBlock& node) { return done((execute_call_block(node), 0)); },
          [&](const With& node) { return execute_with(node); },
          [](const Break&) { return Flow::leave_loop; },
          [](const Continue&) { return Flow::next_item; },
      },
      statement.node);
}

Interpreter::Flow Interpreter::execute_if(const If& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (truthy(evaluate(*condition))) return execute(body);
  }
  return execute(statement.otherwise);
}

Interpreter::Flow Interpreter::execute_for(const For& statement) {
  ListPtr items = iterate(evaluate(*statement.items), budget());
  if (statement.filter) {
    std::vector<Value> kept;
    for (const Value& value : items->items) {
      const NewScope scope(*this);
      assign(statement.target, value);
      if (truthy(evaluate(*statement.filter))) kept.push_back(value);
    }
    items = std::make_shared<const List>(std::move(kept), false, budget());
  }
  if (items->items.empty()) {
    const NewScope scope(*this);
    return execute(statement.otherwise);
  }
  const auto loop = std::make_shared<Loop>();
  loop->items = items;
  for (std::size_t i = 0; i < items->items.size(); ++i) {
    loop->index = static_cast<std::int64_t>(i);
    const NewScope scope(*this);
    scope_->values.emplace("loop", Value{loop});
    assign(statement.target, items->items[i]);
    if (execute(statement.body) == Flow::leave_loop) break;
  }
  return Flow::normal;
}

void Interpreter::execute_set_block(const SetBlock& statement) {
  Value value;
  {
    Capture capture(*this);
    const NewScope scope(*this);
    execute(statement.body);
    value = capture.take();
  }
  assign(statement.target, evaluate_postfix(statement.filters, std::move(value)));
}

Interpreter::Flow Interpreter::execute_filter_block(const FilterBlock& statement) {
  Value value;
  Flow flow = Flow::normal;
  {
    Capture capture(*this);
    const NewScope scope(*this);
    flow = execute(statement.body);
    value = capture.take();
  }
  write(to_text(evaluate_postfix(statement.filters, std::move(value)), budget()));
  return flow;
}

void Interpreter::execute_call_block(const CallBlock& statement) {
  const auto& call_chain = std::get<Postfix>(statement.call->node);
  // All but the last call, then that call with the block's body as `caller`.
  Value function = evaluate(*call_chain.base);
  for (std::size_t i = 0; i + 1 < call_chain.ops.size(); ++i)
    function = evaluate_op(call_chain.ops[i], function);
  Args args = evaluate_arguments(call_chain.ops.back().arguments);
  caller_for_call_ = make_macro(*statement.caller);
  const Value result = call(function, std::move(args));
  caller_for_call_.reset();
  write(to_text(result, budget()));
}

Interpreter::Flow Interpreter::execute_with(const With& statement) {
  std::vector<Value> values;
  for (const auto& [target, value] : statement.values) values.push_back(evaluate(*value));
  const NewScope scope(*this);
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.values[i].first, std::move(values[i]));
  return execute(statement.body);
}

void Interpreter::assign(const Target& target, Value value, int depth) {
  budget().step();
  if (target.parts.empty()) {
    if (target.attribute.empty()) {
      scope_->values.insert_or_assign(target.name, std::move(value));
      return;
    }
    Value* object = lookup(target.name);
    if (object == nullptr || !object->is<Namespace*>())
      fail("cannot assign attribute on non-namespace object");
    (*object->get<Namespace*>())->set(target.attribute, std::move(value));
    return;
  }
  const ListPtr items = iterate(value, budget());
  if (items->items.size() != target.parts.size()) {
    fail(items->items.size() > target.parts.size()
             ? "too many values to unpack (expected " + std::to_string(target.parts.size()) + ")"
             : "not enough values to unpack (expected " + std::to_string(target.parts.size()) + ", got " +
                   std::to_string(items->items.size()) + ")");
  }
  for (std::size_t i = 0; i < target.parts.size(); ++i) assign(target.parts[i], items->items[i], depth + 1);
}

Value* Interpreter::lookup(std::string_view name) {
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    budget().step();
    const auto found = scope->values.find(name);
    if (found != scope->values.end()) return &found->second;
  }
  return nullptr;
}

std::shared_ptr<Function> Interpreter::make_macro(const Macro& macro) {
  budget().step(4);
  auto function = std::make_shared<Function>();
  function->kind = Function::Kind::macro;
  function->name = macro.name;
  function->macro = &macro;
  function->scope = scope_;
  return function;
}

Value Interpreter::call_macro(const Function& function, Args args) {
  const Depth depth(*this);
  const Macro& macro = *function.macro;
  const auto caller = std::exchange(caller_for_call_, nullptr);
  // A macro outliving the loop it was defined in sees the template's own names only.
  std::shared_ptr<Scope> parent = function.scope.lock();
  const NewScope scope(*this, parent ? std::move(parent) : root_);
  auto& values = scope_->values;
  if (caller) values.insert_or_assign("caller", Value{std::make_shared<Function>(*caller)});
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& parameter = macro.parameters[i];
    Value value = Value::undefined("parameter '" + parameter.name + "' was not provided");
    if (i < args.positional.size()) {
      value = args.positional[i];
    } else if (parameter.fallback) {
      value = evaluate(*parameter.fallback);
    }
    for (auto it = args.named.begin(); it != args.named.end(); ++it) {
      if (it->first != parameter.name) continue;
      if (i < args.positional.size()) {
        fail("macro '" + macro.name + "' got multiple values for argument '" + parameter.name + "'");
      }
      value = std::move(it->second);
      args.named.erase(it);
      break;
    }
    values.insert_or_assign(parameter.name, std::move(value));
  }
  if (args.positional.size() > macro.parameters.size() && !macro.takes_varargs) {
    fail("macro '" + macro.name + "' takes not more than " + std::to_string(macro.parameters.size()) +
         " argument(s)");
  }
  if (!args.named.empty() && !macro.takes_kwargs) {
    fail("macro '" + macro.name + "' takes no keyword argument '" + args.named[0].first + "'");
  }
  const std::size_t taken = std::min(args.positional.size(), macro.parameters.size());
  values.try_emplace("varargs", make_tuple({args.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                                            args.positional.end()},
                                           budget()));
  std::vector<std::pair<Value, Value>> named;
  for (auto& [name, value] : args.named) named.emplace_back(make_text(name, budget()), std::move(value));
  values.try_emplace("kwargs", make_dict(std::move(named), budget()));

  Capture capture(*this);
  execute(macro.body);
  return capture.take();
}

}  // namespace snug::text::jinja
