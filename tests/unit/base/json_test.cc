#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace snug {
namespace {

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']');
}

template <class R>
void expect_error(const R& result, const char* file, const char* field,
                  ErrorCode code = ErrorCode::bad_file) {
  ASSERT_FALSE(result.ok()) << field << " was accepted";
  EXPECT_EQ(result.error().code, code);
  EXPECT_EQ(result.error().message.rfind(file, 0), 0u) << result.error().message;
  EXPECT_NE(result.error().message.find(field), std::string::npos) << result.error().message;
}

TEST(Json, DepthIsLimited) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth), "a.json").ok());
  expect_error(parse_json(nested(kMaxJsonDepth + 1), "a.json"), "a.json", "128 levels");
  expect_error(parse_json(std::string(1'000'000, '['), "a.json"), "a.json", "128 levels");
  // Brackets in strings are not nesting, nor is an escaped quote the end of one.
  EXPECT_TRUE(parse_json("\"" + std::string(1000, '[') + "\"", "a.json").ok());
  EXPECT_TRUE(parse_json("\"\\\"" + std::string(1000, '{') + "\"", "a.json").ok());
}

TEST(Json, ErrorsNameTheSource) {
  expect_error(parse_json("{\"a\":", "config.json"), "config.json", "not valid JSON");
  expect_error(parse_json("", "config.json"), "config.json", "not valid JSON");
  expect_error(parse_json("{} {}", "--chat-kwargs", ErrorCode::usage), "--chat-kwargs", "not valid JSON",
               ErrorCode::usage);
  expect_error(parse_json("\"\xff\"", "config.json"), "config.json", "not valid JSON");
}

TEST(Json, OrderedKeepsTheOrderOfKeys) {
  const auto value = parse_ordered_json(R"({"z":1,"a":2,"m":3})", "x");
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->dump(), R"({"z":1,"a":2,"m":3})");
}

TEST(Json, TypedFields) {
  const Json object = Json::parse(
      R"({"n":5,"neg":-2,"big":18446744073709551615,"x":1.5,"t":true,"s":"text","null":null,"list":[1]})");
  EXPECT_EQ(**optional_int(object, "n", "f", 1, 10), 5);
  EXPECT_EQ(**optional_int(object, "neg", "f", -5, 10), -2);
  EXPECT_EQ(*optional_int(object, "absent", "f", 1, 10), std::nullopt);
  EXPECT_EQ(*optional_int(object, "null", "f", 1, 10), std::nullopt);
  EXPECT_EQ(**optional_number(object, "x", "f"), 1.5);
  EXPECT_EQ(**optional_number(object, "n", "f"), 5.0);
  EXPECT_EQ(**optional_bool(object, "t", "f"), true);
  EXPECT_EQ(**optional_string(object, "s", "f"), "text");
  EXPECT_EQ(*required_int(object, "n", "f", 1, 10), 5);

  expect_error(optional_int(object, "n", "f", 6, 10), "f: n", "from 6 to 10");
  expect_error(optional_int(object, "neg", "f", 0, 10), "f: neg", "-2");
  expect_error(optional_int(object, "big", "f", 0, INT64_MAX), "f: big", "18446744073709551615");
  expect_error(optional_int(object, "x", "f", 0, 10), "f: x", "whole number");
  expect_error(optional_int(object, "t", "f", 0, 10), "f: t", "whole number");
  expect_error(optional_number(object, "s", "f"), "f: s", "a number");
  expect_error(optional_bool(object, "n", "f"), "f: n", "true or false");
  expect_error(optional_string(object, "list", "f"), "f: list", "a string");
  expect_error(required_int(object, "absent", "f", 0, 10), "f: absent", "missing");
  expect_error(required_int(object, "null", "f", 0, 10), "f: null", "missing");
}

TEST(Json, LongValuesAreCutInMessages) {
  Json object;
  object["n"] = std::string(10'000, 'x');
  const auto result = optional_int(object, "n", "f", 0, 1);
  ASSERT_FALSE(result.ok());
  EXPECT_LT(result.error().message.size(), 200u);
}

}  // namespace
}  // namespace snug
