// Templates of the kinds that model families use, with what transformers makes of them.
#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace snug::text {
namespace {

const OrderedJson kVariables = OrderedJson::parse(
    R"~({ "messages": [ { "role": "user", "content": " hi 你好 " }, { "role": "assistant", "content": "<think>\nhmm\n</think>\n\nyo" }, { "role": "user", "content": "bye" } ],
 "tools": [ { "type": "function", "function": { "name": "f", "parameters": { "type": "object", "properties": { "a": { "type": "array", "items": { "type": "string" } }, "b": { "type": "object", "properties": { "c": {} } } } } } } ], "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "enable_thinking": false
})~");

// SmolLM2-Instruct's own template.
constexpr const char* kSmolLm2 =
    R"~({% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %})~";

// Llama 3 style: headers, trimmed contents.
constexpr const char* kHeaders =
    R"~({% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})~";

// Mistral style: instructions, roles must alternate.
constexpr const char* kInstructions = R"~({{ bos_token }}{% for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + message['content'] + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {{- message['content'] + eos_token + ' ' }}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported!') }}
    {%- endif %}
{%- endfor %})~";

// Qwen3 style: namespaces, backward loops, reasoning cut from history.
constexpr const char* kThinking = R"~({%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + content }}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %})~";

// A recursive macro over tool schemas, and a generation block.
constexpr const char* kMacro = R"~({%- macro render_type(schema, level=0) -%}
{%- if schema.type == 'object' -%}
{ {%- for name, child in schema.properties.items() %}{{ name }}: {{ render_type(child, level=level + 1) }}{{ ', ' if not loop.last }}{% endfor -%} }
{%- elif schema.type == 'array' -%}
{{ render_type(schema['items'], level + 1) }}[]
{%- else -%}
{{ schema.type | default('any') }}
{%- endif -%}
{%- endmacro -%}
{% for tool in tools %}
{{ tool.function.name }}({{ render_type(tool.function.parameters) }})
{% endfor %}
{% generation %}{{ messages | map(attribute='content') | join(' / ') }}{% endgeneration %}
)~";

std::string rendered(const char* source, const OrderedJson& variables = kVariables) {
  const auto chat_template = ChatTemplate::parse(source, "test");
  EXPECT_TRUE(chat_template.ok()) << chat_template.error().message;
  if (!chat_template.ok()) return "";
  const auto text = chat_template->render(variables);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? *text : "";
}

TEST(ChatTemplateFamilies, RenderAsTransformers) {
  EXPECT_EQ(rendered(kSmolLm2),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\n hi 你好 "
            "<|im_end|>\n<|im_start|>assistant\n<think>\nhmm\n</"
            "think>\n\nyo<|im_end|>\n<|im_start|>user\nbye<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(rendered(kHeaders),
            "<s><|start_header_id|>user<|end_header_id|>\n\nhi "
            "你好<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n<think>\nhmm\n</"
            "think>\n\nyo<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nbye<|eot_id|><|start_header_"
            "id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(rendered(kInstructions),
            "<s>[INST]  hi 你好  [/INST]<think>\nhmm\n</think>\n\nyo</s> [INST] bye [/INST]");
  EXPECT_EQ(rendered(kThinking),
            "<|im_start|>user\n hi 你好 "
            "<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n<|im_start|>user\nbye<|im_end|>\n<|im_start|>"
            "assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(rendered(kMacro),
            "f({a: string[], b: {c: any}})\n hi 你好  / <think>\nhmm\n</think>\n\nyo / bye");
}

TEST(ChatTemplateFamilies, AlternationIsTheTemplatesOwnError) {
  const auto chat_template = ChatTemplate::parse(kInstructions, "test");
  ASSERT_TRUE(chat_template.ok());
  OrderedJson variables = kVariables;
  variables["messages"].erase(1);
  const auto text = chat_template->render(variables);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::usage);
  EXPECT_EQ(text.error().message, "Conversation roles must alternate user/assistant/user/assistant/...");
}

}  // namespace
}  // namespace snug::text
