#include "cli/json_output.h"

#include <gtest/gtest.h>

#include <limits>

namespace quire {
namespace {

namespace json = boost::json;

TEST(JsonOutput, ReadsBackAsTheSameValue) {
  json::object inner{{"a \"quote\"", "line\nend"}, {"none", nullptr}, {"yes", true}};
  json::value value =
      json::object{{"n", -3}, {"x", 0.1}, {"big", 1e300}, {"list", json::array{1, 2.5, inner}}};
  EXPECT_EQ(json::parse(to_json(value)), value);
}

TEST(JsonOutput, WritesShortNumbersAndOrder) {
  EXPECT_EQ(to_json(json::object{{"b", 0.1}, {"a", json::array{}}, {"c", json::object{}}}),
            R"({"b":0.1,"a":[],"c":{}})");
}

TEST(JsonOutput, KeepsWholeDoublesDoubles) {
  EXPECT_EQ(to_json(json::array{3.0, -0.0, 1e20, 7}), "[3.0,-0.0,1e+20,7]");
}

TEST(JsonOutput, HasNoInfinity) {
  double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(to_json(json::array{infinite, -infinite, std::numeric_limits<double>::quiet_NaN()}),
            "[null,null,null]");
}

TEST(JsonOutput, KeepsTheDigitsOfAFloat) {
  EXPECT_EQ(to_json(json::array{json_float(0.1f), json_float(-13.062515f)}), "[0.1,-13.062515]");
  for (float value : {1.1754944e-38f, 3.4028235e38f, -0.33333334f, 16777216.0f}) {
    EXPECT_EQ(static_cast<float>(json_float(value)), value);
  }
}

}  // namespace
}  // namespace quire
