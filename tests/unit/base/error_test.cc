#include "base/error.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace snug {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return Error{ErrorCode::usage, std::to_string(x) + " is odd", "give an even number"};
  return x / 2;
}

Status check_half(int x) {
  SNUG_TRY(half(x));
  return {};
}

Result<int> quarter(int x) {
  SNUG_ASSIGN(const int first, half(x));
  SNUG_ASSIGN(const int second, half(first));
  return second;
}

TEST(Error, ResultHoldsAValueOrAnError) {
  EXPECT_TRUE(half(4).ok());
  EXPECT_EQ(*half(4), 2);
  const auto wrong = half(3);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::usage);
  EXPECT_EQ(wrong.error().to_string(), "3 is odd (give an even number)");
  EXPECT_EQ((Error{ErrorCode::failed, "broken", ""}.to_string()), "broken");
}

TEST(Error, MacrosReturnTheFirstError) {
  EXPECT_TRUE(check_half(2).ok());
  EXPECT_EQ(check_half(7).error().message, "7 is odd");
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(5).error().message, "5 is odd");
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
}

TEST(Error, MacroMovesWhatCannotBeCopied) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(5); };
  const auto take = [&]() -> Result<int> {
    SNUG_ASSIGN(const std::unique_ptr<int> p, make());
    return *p;
  };
  EXPECT_EQ(*take(), 5);
}

// The process's exit codes are these values.
TEST(Error, CodesAreExitCodes) {
  EXPECT_EQ(static_cast<int>(ErrorCode::failed), 1);
  EXPECT_EQ(static_cast<int>(ErrorCode::usage), 2);
  EXPECT_EQ(static_cast<int>(ErrorCode::does_not_fit), 3);
  EXPECT_EQ(static_cast<int>(ErrorCode::bad_file), 4);
}

}  // namespace
}  // namespace snug
