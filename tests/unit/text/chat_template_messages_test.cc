// normalize_messages.
#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace snug::text {
namespace {

OrderedJson normalized(std::string_view messages, bool keep_parts = false) {
  const auto result = normalize_messages(OrderedJson::parse(messages), keep_parts);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : OrderedJson();
}

TEST(NormalizeMessages, JoinsTextParts) {
  EXPECT_EQ(normalized(R"([{"role":"user","content":[{"type":"text","text":"Hello"}]}])"),
            normalized(R"([{"role":"user","content":"Hello"}])"));
  EXPECT_EQ(normalized(R"([{"role":"user","content":[{"type":"text","text":"a"},"b"]}])")[0]["content"],
            "a\nb");
  EXPECT_EQ(normalized(R"([{"role":"user","content":[]}])")[0]["content"], "");
}

TEST(NormalizeMessages, KeepsPartsWhereAsked) {
  const auto content =
      normalized(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}},"b"]}])",
                 true)[0]["content"];
  EXPECT_EQ(content, OrderedJson::parse(
                         R"([{"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":"b"}])"));
  EXPECT_EQ(normalized(R"([{"role":"user","content":"plain"}])", true)[0]["content"], "plain");
}

TEST(NormalizeMessages, NullMeansAbsent) {
  const auto message =
      normalized(R"([{"role":"assistant","content":null,"tool_calls":null,"name":null}])")[0];
  EXPECT_EQ(message, OrderedJson::parse(R"({"role":"assistant","content":""})"));
}

TEST(NormalizeMessages, DecodesArgumentsOnce) {
  const auto calls = normalized(R"([{"role":"assistant","content":null,"tool_calls":[
    {"function":{"name":"a","arguments":"{\"z\": 1, \"b\": \"{}\"}"}},
    {"function":{"name":"b","arguments":"not json {"}},
    {"function":{"name":"c","arguments":"\"{}\""}},
    {"function":{"name":"d","arguments":{"k":[1]}}},
    {"function":{"name":"e"}}]}])")[0]["tool_calls"];
  EXPECT_EQ(calls[0]["function"]["arguments"].dump(), R"({"z":1,"b":"{}"})");  // the order is kept
  EXPECT_EQ(calls[1]["function"]["arguments"], "not json {");
  EXPECT_EQ(calls[2]["function"]["arguments"], "{}");
  EXPECT_EQ(calls[3]["function"]["arguments"].dump(), R"({"k":[1]})");
  EXPECT_FALSE(calls[4]["function"].contains("arguments"));
}

TEST(NormalizeMessages, NamesTheFieldThatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "messages "},
      {R"([])", "messages "},
      {R"(["hi"])", "messages[0] "},
      {R"([{"content":"x"}])", "messages[0].role "},
      {R"([{"role":5,"content":"x"}])", "messages[0].role "},
      {R"([{"role":"","content":"x"}])", "messages[0].role "},
      {R"([{"role":"user","content":"x"},{"role":"user"}])", "messages[1].content "},
      {R"([{"role":"user","content":5}])", "messages[0].content "},
      {R"([{"role":"user","content":[5]}])", "messages[0].content[0] "},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text "},
      {R"([{"role":"user","content":[{"type":7}]}])", "messages[0].content[0].type "},
      {R"([{"role":"user","content":["a",{"type":"image_url","image_url":{}}]}])",
       "messages[0].content[1].type "},
      {R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls "},
      {R"([{"role":"assistant","tool_calls":[1]}])", "messages[0].tool_calls[0] "},
      {R"([{"role":"assistant","tool_calls":[{}]}])", "messages[0].tool_calls[0].function "},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":1}}]}])",
       "messages[0].tool_calls[0].function.name "},
  };
  for (const auto& [messages, field] : cases) {
    const auto result = normalize_messages(OrderedJson::parse(messages), false);
    ASSERT_FALSE(result.ok()) << messages;
    EXPECT_EQ(result.error().code, ErrorCode::usage);
    EXPECT_TRUE(result.error().message.starts_with(field)) << result.error().message;
  }
}

}  // namespace
}  // namespace snug::text
