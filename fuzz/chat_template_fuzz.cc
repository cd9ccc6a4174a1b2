// Any bytes as a chat template: parsing and rendering end with a text or an error, within the limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const snug::text::TemplateLimits limits{
      .max_steps = 20'000, .max_output = 1 << 16, .max_depth = 64, .max_source = 1 << 16};
  const auto chat_template = snug::text::ChatTemplate::parse(source, "fuzz", limits);
  if (!chat_template.ok()) return 0;
  static const snug::OrderedJson variables = snug::OrderedJson::parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "héé 世界"}, {"type": "image"}]},
      {"role": "assistant", "content": null, "tool_calls": [
        {"type": "function", "id": "c1", "function": {"name": "f", "arguments": {"a": [1, 2.5, true, null]}}}]},
      {"role": "tool", "content": "  42 \n"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  const auto text = chat_template->render(variables);
  if (text.ok() && static_cast<std::int64_t>(text->size()) > limits.max_output) __builtin_trap();
  return 0;
}
