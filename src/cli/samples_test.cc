#include "cli/samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace quire {
namespace {

Samples one_to(int count) {
  Samples samples;
  for (int i = 1; i <= count; ++i) samples.add(i);
  std::mt19937 random(7);
  std::ranges::shuffle(samples.values, random);
  return samples;
}

TEST(Samples, PercentilesAreNearestRanks) {
  const Samples hundred = one_to(100);
  EXPECT_EQ(hundred.percentile(50), 50);
  EXPECT_EQ(hundred.percentile(90), 90);
  EXPECT_EQ(hundred.percentile(99), 99);
  EXPECT_EQ(hundred.percentile(100), 100);
  EXPECT_EQ(hundred.percentile(0.5), 1);
  EXPECT_EQ(one_to(10).percentile(99), 10);
  EXPECT_EQ(one_to(10).percentile(90), 9);
  EXPECT_EQ(one_to(10).percentile(91), 10);
  EXPECT_EQ(one_to(1).percentile(1), 1);
}

// Nearest rank by its definition: the least value that so many do not exceed.
TEST(Samples, PercentilesEqualTheDefinition) {
  std::mt19937 random(3);
  for (int count : {1, 2, 3, 7, 50, 333}) {
    Samples samples;
    for (int i = 0; i < count; ++i) samples.add(static_cast<double>(random() % 40));
    for (int percent = 1; percent <= 100; ++percent) {
      double least = samples.max();
      for (double candidate : samples.values) {
        const auto covered = std::ranges::count_if(samples.values, [&](double v) { return v <= candidate; });
        if (covered * 100 >= percent * count) least = std::min(least, candidate);
      }
      EXPECT_EQ(samples.percentile(percent), least) << count << " values, p" << percent;
    }
  }
}

TEST(Samples, MedianMinMaxMean) {
  EXPECT_EQ(one_to(5).median(), 3);
  EXPECT_EQ(one_to(4).median(), 2.5);
  EXPECT_EQ(one_to(1).median(), 1);
  EXPECT_EQ(one_to(9).min(), 1);
  EXPECT_EQ(one_to(9).max(), 9);
  EXPECT_EQ(one_to(9).mean(), 5);
}

TEST(Samples, NothingIsNull) {
  EXPECT_TRUE(spread_json({}, 1).is_null());
  EXPECT_TRUE(percentiles_json({}).is_null());
  EXPECT_EQ(spread_json(one_to(3), 2).at("median").as_double(), 1);
}

}  // namespace
}  // namespace quire
