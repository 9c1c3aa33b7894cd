#include "cli/command_options.h"

#include <gtest/gtest.h>

#include "cli/sampling_options.h"

namespace quire {
namespace {

TEST(ParseNumber, TakesTheWholeTextInItsRange) {
  EXPECT_EQ(parse_number<int>("42", {.min = 0, .max = 42}, "--n").value(), 42);
  EXPECT_EQ(parse_number<float>("0.25", {.min = 0, .max = 1}, "--p").value(), 0.25f);
  EXPECT_EQ(parse_number<uint64_t>("18446744073709551615", {}, "--seed").value(), 18446744073709551615u);
}

TEST(ParseNumber, RefusesWhatIsNoNumber) {
  for (const char* text : {"", "x", "1x", " 1", "1 ", "0x10", "1.5", "--n"}) {
    auto value = parse_number<int>(text, {}, "--n");
    ASSERT_FALSE(value) << text;
    EXPECT_EQ(value.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(value.error().field, "--n");
    EXPECT_NE(value.error().message.find(fmt::format("'{}'", text)), std::string::npos)
        << value.error().message;
  }
}

TEST(ParseNumber, NamesValueAndLimitOutOfRange) {
  auto value = parse_number<int>("21", {.min = 0, .max = 20}, "--logprobs");
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().message, "--logprobs: 21 is out of range, must be [0, 20]");
  EXPECT_FALSE(parse_number<int>("99999999999", {.min = 0}, "--n"));
  EXPECT_FALSE(parse_number<uint64_t>("-1", {}, "--seed"));
}

TEST(ParseNumber, KnowsOpenBoundsAndNotANumber) {
  NumberRange<float> open{.min = 0, .max = 1, .lower = Bound::kExcluded};
  EXPECT_FALSE(parse_number<float>("0", open, "--top-p"));
  EXPECT_TRUE(parse_number<float>("1", open, "--top-p"));
  EXPECT_FALSE(parse_number<float>("nan", open, "--top-p"));
  EXPECT_FALSE(parse_number<float>("inf", {.min = 0}, "--x"));
  EXPECT_EQ(open.text(), "(0, 1]");
}

TEST(LogitBias, IsAnIdAndABias) {
  auto bias = parse_logit_bias("17=-2.5");
  ASSERT_TRUE(bias);
  EXPECT_EQ(bias->first, 17);
  EXPECT_EQ(bias->second, -2.5f);
  for (const char* text : {"17", "=1", "-1=1", "17=101", "17=x", "a=1", "17=1=2"}) {
    EXPECT_FALSE(parse_logit_bias(text)) << text;
  }
}

}  // namespace
}  // namespace quire
