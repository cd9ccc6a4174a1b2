#include "text/chat_template.h"

#include <fmt/format.h>

#include <new>

#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"

namespace snug::text {

struct ChatTemplate::Impl {
  std::string name;
  TemplateLimits limits;
  jinja::Block block;
  bool walks_parts = false;
};

namespace {

// A message whose content is a list: does its text come out, and not the list as Python would print it?
bool renders_parts(const ChatTemplate& chat_template) {
  static constexpr std::string_view kText = "part of the content";
  const OrderedJson variables = {
      {"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", kText}}}}}}},
      {"tools", nullptr},
      {"add_generation_prompt", false},
      {"bos_token", ""},
      {"eos_token", ""},
  };
  const auto out = chat_template.render(variables);
  if (!out.ok() || out->find(kText) == std::string::npos) return false;
  return out->find("'type'") == std::string::npos && out->find("\"type\"") == std::string::npos;
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view name,
                                         TemplateLimits limits) {
  static constexpr const char* kRemedy = "give another chat template";
  if (static_cast<std::int64_t>(source.size()) > limits.max_source) {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: chat template is larger than {} bytes", name, limits.max_source), kRemedy};
  }
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->limits = limits;
  try {
    impl->block = jinja::parse_template(source, limits.max_depth);
  } catch (const jinja::Failure& failure) {
    return Error{ErrorCode::bad_file, fmt::format("{}: line {}: {}", name, failure.line, failure.message),
                 kRemedy};
  }
  ChatTemplate chat_template(std::move(impl));
  chat_template.impl_->walks_parts = renders_parts(chat_template);
  return chat_template;
}

Result<std::string> ChatTemplate::render(const OrderedJson& variables) const {
  if (!variables.is_object()) {
    return Error{ErrorCode::usage, fmt::format("{}: the variables must be an object", impl_->name), ""};
  }
  jinja::Budget budget(impl_->limits);
  jinja::Interpreter interpreter(budget);
  try {
    for (const auto& [key, value] : variables.items())
      interpreter.define(key, jinja::from_json(value, budget));
    return interpreter.run(impl_->block);
  } catch (const jinja::Failure& failure) {
    if (failure.raised)
      return Error{ErrorCode::usage, failure.message, "change the messages to suit the template"};
    const int line = failure.line > 0 ? failure.line : interpreter.line();
    return Error{ErrorCode::usage, fmt::format("{}: line {}: {}", impl_->name, line, failure.message),
                 "check the messages, or give another chat template"};
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::failed, fmt::format("{}: no memory for the rendered template", impl_->name), ""};
  }
}

bool ChatTemplate::walks_content_parts() const {
  return impl_->walks_parts;
}

}  // namespace snug::text
