#include <gmock/gmock.h>

#include "unit/grammar/texts.h"

namespace snug::grammar {
namespace {

TEST(JsonObject, IsAnyObject) {
  const auto grammar = compile_json_object();
  ASSERT_TRUE(grammar.ok());
  for (const char* text : {"{}", R"({"a":1})", R"({"a": 1, "b": [true, false, null, -1.5e+10, "x"]})",
                           R"({"a":{"b":{"c":[]}}})", "{\n  \"a\": 1,\n  \"b\": [\n    1,\n    2\n  ]\n}",
                           R"({"é\"\\\n\u00e9\ud83d\ude00": "世😀"})", "{\n\t\"a\": {}\n}"}) {
    EXPECT_TRUE(accepts(*grammar, text)) << text;
    EXPECT_TRUE(OrderedJson::accept(text)) << text;
  }
  for (const char* text : {"",
                           "[]",
                           "1",
                           "{",
                           R"({"a"})",
                           R"({"a":})",
                           R"({"a":1,})",
                           R"({a:1})",
                           R"({"a":01})",
                           R"({"a":1.})",
                           R"({"a":"\x"})",
                           R"({"a":"\ud83d"})",
                           R"({"a":"\udc00"})",
                           "{\"a\":\"\n\"}",
                           R"({"a":tru})",
                           R"({} )",
                           R"({"a" :1})",
                           R"({"a":  1})",
                           "{\n\n}",
                           "{\"a\":\"\xff\"}"}) {
    EXPECT_FALSE(accepts(*grammar, text)) << text;
  }
}

TEST(JsonObject, NestsToALimitAndCanAlwaysEnd) {
  const auto grammar = compile_json_object();
  ASSERT_TRUE(grammar.ok());
  std::string open, close;
  for (int i = 0; i < 63; ++i) open += "{\"a\":", close += "}";
  EXPECT_TRUE(accepts(*grammar, open + "[]" + close));
  EXPECT_FALSE(accepts(*grammar, open + "[[" + "]]" + close));
  EXPECT_TRUE(accepts(*grammar, open + "[1]" + close));
}

TEST(JsonSchema, ReadsTexts) {
  struct Case {
    const char* schema;
    std::vector<const char*> yes, no;
  };
  const Case cases[] = {
      {"true", {"1", "\"a\"", "{}", "[1, {\"a\": null}]"}, {"", "x"}},
      {"{}", {"1", "null"}, {"nul"}},
      {R"({"type":"string"})", {R"("a")", R"("")"}, {"1", "a"}},
      {R"({"type":["string","null"]})", {R"("a")", "null"}, {"1"}},
      {R"({"type":"string","nullable":true})", {R"("a")", "null"}, {"1"}},
      {R"({"type":"integer"})",
       {"0", "-1", "12345", "999999999999999999"},
       {"1.0", "01", "+1", "1234567890123456789"}},
      {R"({"type":"number"})", {"0", "-1.5", "1e10", "1E-2"}, {".5", "1.", "1e", "1e100"}},
      {R"({"type":"boolean"})", {"true", "false"}, {"True", "null"}},
      {R"({"type":"integer","minimum":3,"maximum":120})",
       {"3", "9", "10", "99", "100", "119", "120"},
       {"2", "0", "121", "-3", "1000"}},
      {R"({"type":"integer","minimum":-12,"exclusiveMaximum":5})",
       {"-12", "-9", "-1", "0", "4"},
       {"5", "-13", "10", "-0"}},
      {R"({"type":"integer","exclusiveMinimum":0})", {"1", "10", "99999"}, {"0", "-1"}},
      {R"({"type":"integer","minimum":0.5,"maximum":2.5})", {"1", "2"}, {"0", "3"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("世界é")", R"("\n\"😀")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type":"string","pattern":"^[A-Z]{2}\\d+$"})",
       {R"("AB1")"},
       {R"("xAB1")", R"("AB")", R"("AB1x")"}},
      {R"({"type":"string","pattern":"b+"})", {R"("b")", R"("abba")", R"("\nb\"")"}, {R"("aa")"}},
      {R"({"type":"string","pattern":"^.\"\\\\$"})", {R"("x\"\\")"}, {R"("x"\\")"}},
      {R"({"type":"string","format":"date"})",
       {R"("2024-12-31")", R"("2024-02-28")"},
       {R"("2024-13-01")", R"("2024-04-31")"}},
      {R"({"type":"string","format":"date-time"})",
       {R"("2024-12-31T23:59:59.123Z")", R"("2024-12-31T23:59:59+02:00")"},
       {R"("2024-12-31 23:59:59")"}},
      {R"({"type":"string","format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567")"}},
      {R"({"type":"string","format":"email"})", {R"("a.b+c@example.org")"}, {R"("a@b")", R"("a b@c.de")"}},
      {R"({"type":"string","format":"ipv4"})",
       {R"("127.0.0.1")", R"("255.255.255.255")"},
       {R"("256.0.0.1")", R"("1.2.3")"}},
      {R"({"type":"string","format":"ipv6"})",
       {R"("::1")", R"("2001:db8::8a2e:370:7334")", R"("::")"},
       {R"(":::")", R"("1:2")"}},
      {R"({"type":"string","format":"uri"})", {R"("https://example.org/a?b=c#d")"}, {R"("not a uri")"}},
      {R"({"type":"string","format":"duration"})",
       {R"("P1Y2M3DT4H5M6S")", R"("PT5M")", R"("P3W")"},
       {R"("P")", R"("P1S")"}},
      {R"({"type":"string","format":"password"})", {R"("any")"}, {"1"}},
      {R"({"enum":["a","b c",1,null,{"x":[1,2]}]})",
       {R"("a")", R"("b c")", "1", "null", R"({"x": [1, 2]})", R"({"x":[1,2]})"},
       {R"("b")", "2", "{}"}},
      {R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"}},
      {R"({"const":"a\"b"})", {R"("a\"b")"}, {R"("a")"}},
      {R"({"type":"array","items":{"type":"integer"}})",
       {"[]", "[1]", "[1, 2,3]", "[\n  1,\n  2\n]"},
       {"[1,]", "[,1]", "[\"a\"]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {"[1,2]", "[1,2,3]"},
       {"[]", "[1]", "[1,2,3,4]"}},
      {R"({"type":"array","items":{"type":"integer"},"maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","minItems":1})", {"[1]", "[\"a\",{}]"}, {"[]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})",
       {"[]", "[1]", R"([1,"a"])"},
       {R"(["a"])", R"([1,"a",2])"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"string"},"minItems":2})",
       {R"([1,"a"])", R"([1,"a","b"])"},
       {"[1]", "[1,2]", "[]"}},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2},{"const":3}],"minItems":2})",
       {"[1,2]", "[1,2,3]"},
       {"[1]", "[]", "[1,2,3,4]"}},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2},{"const":3}],"maxItems":2})",
       {"[1,2]", "[1]", "[]"},
       {"[1,2,3]"}},
      {R"({"type":"object"})", {"{}", R"({"a":1})"}, {"[]"}},
      {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a","b"],"additionalProperties":false})",
       {R"({"a":1,"b":"x"})", R"({"a": 1, "b": "x"})", "{\n  \"a\": 1,\n  \"b\": \"x\"\n}"},
       {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"a":1,"b":"x","c":1})", R"({"a":"x","b":"x"})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"]})",
       {R"({"b":"x"})", R"({"a":1,"b":"x"})", R"({"a":1,"b":"x","c":null})", R"({"b":"x","c":null})"},
       {"{}", R"({"a":1})", R"({"a":1,"c":null})", R"({"b":"x",})", R"({"b":"x","d":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}}})",
       {"{}", R"({"a":1})", R"({"b":"x"})", R"({"a":1,"b":"x"})"},
       {R"({"b":"x","a":1})", R"({,"b":"x"})"}},
      {R"({"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
       {"{}", R"({"ab":1})", R"({"a":"x"})", R"({"abc":"x"})", R"({"ab":1,"b":"x","":"y"})"},
       {R"({"ab":"x"})", R"({"a":1})", R"({"b":"x","ab":1})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"}})",
       {"{}", R"({"a":1,"b":2})"},
       {R"({"a":"x"})"}},
      {R"({"type":"object","required":["a"]})", {R"({"a":1})", R"({"a":[]})"}, {"{}"}},
      {R"({"properties":{"a":false,"b":true}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}]})",
       {"1", R"({"a":"x"})", R"({"a":1})"},
       {"{}", R"({"a":null})"}},
      {R"({"oneOf":[{"type":"string"},{"type":"null"}]})", {R"("x")", "null"}, {"1"}},
      {R"({"allOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"type":"integer"}}})", {"1"}, {"\"a\""}},
      {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}},"$ref":"#/$defs/node"})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1})", R"({"v":1,"next":{}})"}},
      {R"({"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}}})",
       {"{}", R"({"children":[]})", R"({"children":[{},{"children":[{}]}]})"},
       {R"({"children":[1]})"}},
      {R"({"definitions":{"a/b":{"type":"integer"}},"$ref":"#/definitions/a~1b"})", {"1"}, {"\"a\""}},
      {R"({"title":"T","description":"d","default":1,"examples":[1],"$schema":"s","$comment":"c","x-y":1,"type":"integer"})",
       {"1"},
       {"null"}},
  };
  for (const auto& c : cases) {
    const auto grammar = schema(c.schema);
    if (grammar == nullptr) continue;
    for (const auto* text : c.yes) {
      EXPECT_TRUE(accepts(grammar, text)) << c.schema << " on " << text;
      EXPECT_TRUE(OrderedJson::accept(text)) << text;
    }
    for (const auto* text : c.no) EXPECT_FALSE(accepts(grammar, text)) << c.schema << " on " << text;
  }
}

TEST(JsonSchema, NamesWhatIsWrong) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {R"({"properties":{"x":{"not":{}}}})", "#/properties/x", "not"},
      {R"({"items":{"patternProperties":{}}})", "#/items", "patternProperties"},
      {R"({"uniqueItems":true})", "#", "uniqueItems"},
      {R"({"if":{}})", "#", "if"},
      {R"({"type":"text"})", "#", "type \"text\""},
      {R"({"$ref":"#/$defs/x"})", "#", "leads nowhere"},
      {R"({"$ref":"http://x"})", "#", "leads nowhere"},
      {R"x({"anyOf":[{"pattern":"(?=a)"}]})x", "#/anyOf/0/pattern", "look-ahead"},
      {R"({"$ref":"#"})", "$ref #", "refers to itself"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "$ref #", "refers to itself"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "JSON schema", "no text"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "JSON schema", "no text"},
      {"false", "JSON schema", "no text"},
      {R"({"minLength":-1})", "#", "minLength"},
      {R"({"maxItems":1000000})", "#", "above the limit"},
      {R"([1])", "#", "must be an object"},
      {R"({"type":"object","required":"a"})", "#", "required"},
  };
  for (const auto& [text, path, expected] : cases) {
    const auto grammar = compile_json_schema(OrderedJson::parse(text));
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_EQ(grammar.error().code, ErrorCode::usage);
    EXPECT_THAT(grammar.error().to_string(), testing::HasSubstr(path)) << text;
    EXPECT_THAT(grammar.error().to_string(), testing::HasSubstr(expected)) << text;
  }
}

TEST(ToolCalls, AreWrittenAsQwenDoes) {
  const std::vector<ToolSignature> tools = {
      {"get_weather",
       OrderedJson::parse(
           R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"]})")},
      {"now", nullptr}};
  const auto one = compile_tool_calls(tools, false), many = compile_tool_calls(tools, true);
  ASSERT_TRUE(one.ok() && many.ok());
  const std::string weather =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
  const std::string now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  for (const auto& text : {weather, now}) {
    EXPECT_TRUE(accepts(*one, text)) << text;
    EXPECT_TRUE(read(*one, text).must_end);
    EXPECT_TRUE(accepts(*many, text)) << text;
    EXPECT_FALSE(read(*many, text).must_end);
  }
  EXPECT_FALSE(accepts(*one, weather + "\n" + now));
  EXPECT_TRUE(accepts(*many, weather + "\n" + now + "\n" + now));
  EXPECT_FALSE(accepts(*many, weather + now));
  EXPECT_FALSE(accepts(*one, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(accepts(*one, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(compile_tool_calls({}, true).ok());

  const auto bad =
      compile_tool_calls({{"f", OrderedJson::parse(R"({"properties":{"x":{"not":{}}}})")}}, false);
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message, testing::StartsWith("tool f: #/properties/x"));
}

}  // namespace
}  // namespace snug::grammar
