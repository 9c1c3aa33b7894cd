#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace quire {
namespace {

RopeSpec spec_of(int dims, double base) {
  RopeSpec spec;
  spec.dims = dims;
  spec.freq_base = base;
  return spec;
}

TEST(RopeFrequencies, FollowTheFormula) {
  const RopeFrequencies rope = make_rope_frequencies(spec_of(8, 1e4));
  ASSERT_EQ(rope.frequencies.size(), 4u);
  EXPECT_EQ(rope.dims, 8);
  const double expected[] = {1.0, 0.1, 0.01, 0.001};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(rope.frequencies[i], expected[i], 1e-15);
}

TEST(RopeFrequencies, ScaleAndDivisorsApply) {
  RopeSpec spec = spec_of(4, 1e6);
  spec.position_scale = 0.125;
  spec.freq_divisors = {2.0f, 8.0f};
  spec.pairing = RopeSpec::Pairing::kInterleaved;
  const RopeFrequencies rope = make_rope_frequencies(spec);
  EXPECT_EQ(rope.pairing, RopeSpec::Pairing::kInterleaved);
  EXPECT_NEAR(rope.frequencies[0], 0.125 / 2, 1e-15);
  EXPECT_NEAR(rope.frequencies[1], 1e-3 * 0.125 / 8, 1e-18);
}

TEST(RopeFrequencies, NoRotatedDimensions) {
  EXPECT_TRUE(make_rope_frequencies(spec_of(0, 1e4)).frequencies.empty());
}

// The angle reduced in long double stands in for the exact one: positions up to a million.
TEST(RopeAngles, AreTheRoundedCosAndSin) {
  const RopeFrequencies rope = make_rope_frequencies(spec_of(64, 1e4));
  std::vector<float> cos(32), sin(32);
  for (Position position : {0, 1, 2, 255, 256, 8191, 131071, 1000003}) {
    rope_angles(rope, position, cos.data(), sin.data());
    for (size_t i = 0; i < 32; ++i) {
      const long double angle = static_cast<long double>(position) * rope.frequencies[i];
      // Half a unit in the last place of a value below 1, and the rounding of the angle in double.
      const double bound = 0x1p-25 + 1000003 * 0x1p-53;
      EXPECT_NEAR(cos[i], static_cast<double>(std::cos(angle)), bound) << position << " " << i;
      EXPECT_NEAR(sin[i], static_cast<double>(std::sin(angle)), bound) << position << " " << i;
    }
  }
}

}  // namespace
}  // namespace quire
