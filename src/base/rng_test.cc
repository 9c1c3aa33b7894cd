#include "base/rng.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// Known answers published with the Random123 library for philox4x32-10.
TEST(Rng, PhiloxMatchesPublishedVectors) {
  EXPECT_EQ(philox4x32(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, UniformIsInUnitIntervalAndSpread) {
  double sum = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    double u = uniform_at(7, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
  EXPECT_NE(uniform_at(7, 1), uniform_at(8, 1));
  EXPECT_NE(uniform_at(7, 1), uniform_at(7, 1, 1));
}

}  // namespace
}  // namespace quire
