#include <fmt/format.h>

#include "text/chat_template.h"

namespace snug::text {
namespace {

Error wrong(const std::string& field, std::string_view what) {
  return {ErrorCode::usage, fmt::format("{} {}", field, what), "see the chat completions format"};
}

// One part of a content list, checked; text parts come back as {"type": "text", "text": …}.
Result<OrderedJson> normalize_part(const OrderedJson& part, const std::string& field) {
  if (part.is_string()) return OrderedJson{{"type", "text"}, {"text", part}};
  if (!part.is_object()) return wrong(field, "must be an object or a string");
  const auto type = part.find("type");
  if (type != part.end() && !type->is_string()) return wrong(field + ".type", "must be a string");
  const bool is_text = type == part.end() ? part.contains("text") : *type == "text" || *type == "input_text";
  if (!is_text) {
    if (type == part.end() && part.empty()) return wrong(field + ".type", "is missing");
    return part;
  }
  const auto text = part.find("text");
  if (text == part.end() || !text->is_string()) return wrong(field + ".text", "must be a string");
  OrderedJson fixed = part;
  fixed["type"] = "text";
  return fixed;
}

Result<OrderedJson> normalize_content(const OrderedJson& content, const std::string& field, bool keep_parts) {
  if (content.is_null()) return OrderedJson("");
  if (content.is_string()) return content;
  if (!content.is_array()) return wrong(field, "must be a string, null or a list of parts");
  OrderedJson parts = OrderedJson::array();
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", field, i);
    SNUG_ASSIGN(OrderedJson part, normalize_part(content[i], name));
    const bool is_text = part.contains("type") && part["type"] == "text";
    if (!keep_parts && !is_text) {
      const std::string type = part.contains("type") ? part["type"].get<std::string>() : "unknown";
      return wrong(name + ".type",
                   fmt::format("is '{}', but this model's chat template takes text only", type));
    }
    if (is_text) {
      if (i > 0) text += "\n";
      text += part["text"].get_ref<const std::string&>();
    }
    parts.push_back(std::move(part));
  }
  if (keep_parts) return parts;
  return OrderedJson(text);
}

Status normalize_tool_calls(OrderedJson& calls, const std::string& field) {
  if (!calls.is_array()) return wrong(field, "must be a list");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", field, i);
    if (!calls[i].is_object()) return wrong(name, "must be an object");
    const auto function = calls[i].find("function");
    if (function == calls[i].end() || !function->is_object())
      return wrong(name + ".function", "must be an object");
    const auto function_name = function->find("name");
    if (function_name == function->end() || !function_name->is_string()) {
      return wrong(name + ".function.name", "must be a string");
    }
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    auto decoded = parse_ordered_json(arguments->get_ref<const std::string&>(), name, ErrorCode::usage);
    if (decoded.ok()) *arguments = std::move(*decoded);
  }
  return {};
}

}  // namespace

Result<OrderedJson> normalize_messages(const OrderedJson& messages, bool keep_parts) {
  if (!messages.is_array()) return wrong("messages", "must be a list");
  if (messages.empty()) return wrong("messages", "must not be empty");
  OrderedJson out = OrderedJson::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string field = fmt::format("messages[{}]", i);
    if (!messages[i].is_object()) return wrong(field, "must be an object");
    // null means absent, save for content, which templates read without asking whether it is there.
    OrderedJson message = OrderedJson::object();
    for (const auto& [key, value] : messages[i].items()) {
      if (!value.is_null() || key == "content") message[key] = value;
    }
    const auto role = message.find("role");
    if (role == message.end()) return wrong(field + ".role", "is missing");
    if (!role->is_string() || role->get_ref<const std::string&>().empty()) {
      return wrong(field + ".role", "must be a non-empty string");
    }
    const bool has_calls = message.contains("tool_calls");
    if (!message.contains("content")) {
      if (!has_calls) return wrong(field + ".content", "is missing");
      message["content"] = nullptr;
    }
    SNUG_ASSIGN(message["content"], normalize_content(message["content"], field + ".content", keep_parts));
    if (has_calls) SNUG_TRY(normalize_tool_calls(message["tool_calls"], field + ".tool_calls"));
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace snug::text
