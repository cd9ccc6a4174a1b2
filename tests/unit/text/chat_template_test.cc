#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

namespace snug::text {
namespace {

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

ChatTemplate parsed(std::string_view source, TemplateLimits limits = {}) {
  auto chat_template = ChatTemplate::parse(source, "test", limits);
  EXPECT_TRUE(chat_template.ok()) << chat_template.error().message;
  return std::move(chat_template).value();
}

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// Qwen2.5's templates, which the project does not carry.
struct Qwen {
  ChatTemplate text, vision;
};
std::optional<Qwen> qwen() {
  const std::filesystem::path folder = std::filesystem::path(SNUG_SHARED_TOKENIZER_DIR) / "qwen2.5";
  const auto config = read_file(folder / "tokenizer_config.json");
  const auto vision = read_file(folder / "vl_chat_template.jinja");
  if (!config || !vision) return std::nullopt;
  return Qwen{parsed(OrderedJson::parse(*config)["chat_template"].get<std::string>()), parsed(*vision)};
}

TEST(ChatTemplate, MatchesTransformersOnQwen) {
  const auto templates = qwen();
  const auto golden = read_file(std::filesystem::path(SNUG_GOLDEN_DIR) / "tokenizer" / "chat.json");
  if (!templates || !golden) GTEST_SKIP() << "the reference data beside the project is absent";
  const auto cases = OrderedJson::parse(*golden);
  ASSERT_GE(cases.size(), 34u);
  for (const auto& c : cases) {
    const bool vision = c.value("template", "") == "vl";
    const auto text = (vision ? templates->vision : templates->text).render(c);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, c["text"].get<std::string>());
  }
  EXPECT_FALSE(templates->text.walks_content_parts());
  EXPECT_TRUE(templates->vision.walks_content_parts());
}

std::string qwen_prompt(const Qwen& templates, std::string_view messages) {
  const auto normal = normalize_messages(OrderedJson::parse(messages), templates.text.walks_content_parts());
  EXPECT_TRUE(normal.ok()) << normal.error().message;
  const auto text =
      templates.text.render({{"messages", *normal}, {"tools", nullptr}, {"add_generation_prompt", true}});
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? *text : "";
}

TEST(ChatTemplate, QwenPromptHoldsWhatWasSent) {
  const auto templates = qwen();
  if (!templates) GTEST_SKIP() << "the reference data beside the project is absent";
  const std::string system = qwen_prompt(
      *templates,
      R"([{"role":"system","content":"your name is Tom"},{"role":"user","content":"who are you"}])");
  EXPECT_TRUE(system.starts_with("<|im_start|>system\nyour name is Tom<|im_end|>\n")) << system;
  EXPECT_EQ(system.find("Alibaba"), std::string::npos);
  EXPECT_EQ(system.find("Tom"), system.rfind("Tom"));

  EXPECT_EQ(qwen_prompt(*templates, R"([{"role":"user","content":[{"type":"text","text":"Hello"}]}])"),
            qwen_prompt(*templates, R"([{"role":"user","content":"Hello"}])"));

  const std::string calls = qwen_prompt(*templates, R"([{"role":"user","content":"weather?"},
    {"role":"assistant","content":null,"tool_calls":[
      {"type":"function","id":"a","function":{"name":"get_weather","arguments":"{\"city\": \"Köln\", \"days\": 2}"}},
      {"type":"function","id":"b","function":{"name":"run","arguments":"mkdir {a"}}]},
    {"role":"tool","tool_call_id":"a","content":"sunny"}])");
  EXPECT_NE(calls.find(R"({"name": "get_weather", "arguments": {"city": "Köln", "days": 2}})"),
            std::string::npos)
      << calls;
  EXPECT_NE(calls.find(R"({"name": "run", "arguments": "mkdir {a"})"), std::string::npos) << calls;
  EXPECT_NE(calls.find("<tool_response>\nsunny\n</tool_response>"), std::string::npos) << calls;
}

TEST(ChatTemplate, TellsWhetherItWalksParts) {
  EXPECT_TRUE(parsed("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                     "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}")
                  .walks_content_parts());
  EXPECT_FALSE(parsed("{% for m in messages %}{{ m.content }}{% endfor %}").walks_content_parts());
  EXPECT_FALSE(parsed("{% for m in messages %}{{ m.content + '\n' }}{% endfor %}").walks_content_parts());
  EXPECT_FALSE(parsed("{% for m in messages %}{{ m.content | tojson }}{% endfor %}").walks_content_parts());
  EXPECT_FALSE(parsed("constant").walks_content_parts());
}

TEST(ChatTemplate, GivesTheDate) {
  const auto text = parsed("{{ strftime_now('%Y-%m-%d') }}").render(OrderedJson::object());
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(std::regex_match(*text, std::regex("20\\d\\d-\\d\\d-\\d\\d"))) << *text;
}

TEST(ChatTemplate, RaisedMessageIsTheErrors) {
  const auto text = parsed("\n\n{{ raise_exception('only ' ~ 1) }}").render(OrderedJson::object());
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().message, "only 1");
  EXPECT_EQ(text.error().code, ErrorCode::usage);
}

TEST(ChatTemplate, EndsWhateverTheTemplateDoes) {
  const std::string sources[] = {
      "{{ 'x' * 10**9 }}",
      "{{ ('x' * 1000) * 1000000 }}",
      "{{ [1] * 10**12 }}",
      "{{ range(10**12)|list }}",
      "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
      "{% for i in range(99999) %}{{ 'y' * 9999 }}{% endfor %}",
      "{% set ns = namespace(x='abcdefgh') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor "
      "%}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ "
      "ns.x }}",
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = ns.x + ['z' * 9999999 ~ i] %}{% "
      "endfor %}",
      "{{ 'x'.ljust(10**12) }}",
      "{{ 'x'|center(10**12) }}",
      "{{ '7'.zfill(10**15) }}",
      "{{ ('x' * 999999).replace('', 'y' * 999999) }}",
      "{{ ('x' * 999999)|list|join('y' * 999999) }}",
      "{{ 'x'|indent(10**12, true) }}",
      "{{ [[]]|tojson(indent=10**12) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ 2 ** 63 }}",
      "{{ '%5.-3d' % 1 }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{{ f(n) ~ f(n) }}{% endmacro %}{{ f(1) }}",
      "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
      "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
  };
  for (const std::string& source : sources) {
    const auto text =
        parsed(source, {.max_steps = 300'000, .max_output = 1 << 20}).render(OrderedJson::object());
    ASSERT_FALSE(text.ok()) << source;
    EXPECT_TRUE(text.error().message.starts_with("test: line 1: ")) << text.error().message;
  }
}

TEST(ChatTemplate, RefusesDeepNesting) {
  const int deep = 20'000;
  const std::string sources[] = {
      "{{ " + repeated("(", deep) + "1" + repeated(")", deep) + " }}",
      "{{ " + repeated("[", deep) + repeated("]", deep) + " }}",
      "{{ " + repeated("{1:", deep) + "1" + repeated("}", deep) + " }}",
      "{{ " + repeated("not ", deep) + "1 }}",
      "{{ " + repeated("-", deep) + "1 }}",
      "{{ " + repeated("x[", deep) + "1" + repeated("]", deep) + " }}",
      "{{ " + repeated("x(", deep) + "1" + repeated(")", deep) + " }}",
      "{{ " + repeated("1 if 1 else ", deep) + "1 }}",
      "{{ 1" + repeated(" if 1", deep) + " }}",
      repeated("{% if 1 %}", deep) + repeated("{% endif %}", deep),
      "{% for " + repeated("(", deep) + "a" + repeated(")", deep) + " in b %}{% endfor %}",
  };
  for (const std::string& source : sources) {
    const auto chat_template = ChatTemplate::parse(source, "test");
    ASSERT_FALSE(chat_template.ok()) << source.substr(0, 40);
    EXPECT_EQ(chat_template.error().message, "test: line 1: nested too deeply") << source.substr(0, 40);
  }
  // Long chains are not deep.
  const auto chain = parsed("{{ 1" + repeated(" + 1", 5000) + " }}{{ 'a'" + repeated("|upper", 5000) + " }}");
  EXPECT_EQ(chain.render(OrderedJson::object()).value(), "5001A");
}

TEST(ChatTemplate, RefusesDeepInputAndLongSource) {
  OrderedJson deep = 1;
  for (int i = 0; i < 100; ++i) deep = OrderedJson::array({deep});
  const auto text = parsed("{{ x }}").render({{"x", deep}});
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.error().message.find("nested too deeply"), std::string::npos);
  EXPECT_FALSE(ChatTemplate::parse(std::string(2 << 20, 'x'), "test").ok());
  EXPECT_FALSE(parsed("x").render(OrderedJson::array()).ok());
}

TEST(ChatTemplate, RendersFromSeveralThreads) {
  const auto chat_template = parsed(
      "{% set ns = namespace(n=0) %}{% for i in range(200) %}{% set ns.n = ns.n + i %}"
      "{{ 'a' ~ ns.n }}{% endfor %}");
  const auto expected = chat_template.render(OrderedJson::object()).value();
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (auto& text : texts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) text = chat_template.render(OrderedJson::object()).value();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& text : texts) EXPECT_EQ(text, expected);
}

}  // namespace
}  // namespace snug::text
