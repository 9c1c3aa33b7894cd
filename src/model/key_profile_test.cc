#include "model/key_profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

namespace quire {
namespace {

constexpr int kRows = 40;

ModelSpec small_spec(RopeSpec::Pairing pairing) {
  ModelSpec spec;
  spec.vocab_size = 1000;
  spec.context_length = 64;
  LayerSpec layer{.heads = 4, .kv_heads = 2, .head_dim = 8, .value_dim = 8};
  layer.rope.dims = 6;
  layer.rope.pairing = pairing;
  spec.layers.assign(2, layer);
  return spec;
}

// Keys around 10 * d and queries around 0, both with deviations of their own in every dimension.
double key_deviation(int d) {
  return 0.5 + d;
}
double query_deviation(int d) {
  return 3.0 / (1 + d);
}
void fill(KeyRecord& record, const ModelSpec& spec) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (int row = 0; row < kRows; ++row) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int head = 0; head < spec.layers[0].kv_heads; ++head) {
        for (int d = 0; d < 8; ++d)
          record.key(layer, row, head)[d] = static_cast<float>(10 * d + key_deviation(d) * normal(random));
      }
      for (int head = 0; head < spec.layers[0].heads; ++head) {
        for (int d = 0; d < 8; ++d)
          record.query(layer, row, head)[d] = static_cast<float>(query_deviation(d) * normal(random));
      }
    }
  }
}

TEST(KeyProfile, TokensAreOfTheVocabularyAndFit) {
  ModelSpec spec = small_spec(RopeSpec::Pairing::kHalves);
  const std::vector<TokenId> ids = profile_tokens(spec);
  EXPECT_EQ(ids.size(), 64u);
  EXPECT_EQ(std::set<TokenId>(ids.begin(), ids.end()).size(), ids.size());
  for (TokenId id : ids) EXPECT_TRUE(id >= 0 && id < spec.vocab_size);
  spec.context_length = 100'000;
  EXPECT_EQ(profile_tokens(spec).size(), static_cast<size_t>(kProfileTokens));
}

TEST(KeyProfile, GainsFollowTheRatioOfQueriesToKeysPairByPair) {
  for (auto pairing : {RopeSpec::Pairing::kHalves, RopeSpec::Pairing::kInterleaved}) {
    const ModelSpec spec = small_spec(pairing);
    KeyRecord record(spec, kRows);
    fill(record, spec);
    const std::vector<KeyProfile> profiles = record.profiles();
    ASSERT_EQ(profiles.size(), 2u);
    for (const KeyProfile& profile : profiles) {
      ASSERT_EQ(profile.gain.size(), 16u);
      for (int i = 0; i < 16; ++i) {
        const auto at = static_cast<size_t>(i);
        const int d = i % 8;
        int partner = d;
        if (d < 6) partner = pairing == RopeSpec::Pairing::kHalves ? (d + 3) % 6 : d % 2 == 0 ? d + 1 : d - 1;
        const double expected =
            std::pow((std::pow(query_deviation(d), 2) + std::pow(query_deviation(partner), 2)) /
                         (std::pow(key_deviation(d), 2) + std::pow(key_deviation(partner), 2)),
                     1.0 / 8);
        EXPECT_NEAR(profile.gain[at] / expected, 1, 0.15) << i;  // of 36 samples, to the power of 1/8
        EXPECT_EQ(profile.gain[at], profile.gain[static_cast<size_t>(i - d + partner)]);
        EXPECT_NEAR(profile.gain[at] * profile.inverse_gain[at], 1, 1e-6);
        EXPECT_NEAR(profile.mean[at], 10 * d, 5 * key_deviation(d) / std::sqrt(kRows - kProfileSkipped));
        EXPECT_EQ(profile.gained_mean[at], profile.mean[at] * profile.gain[at]);
      }
    }
  }
}

TEST(KeyProfile, FirstTokensDoNotCount) {
  const ModelSpec spec = small_spec(RopeSpec::Pairing::kHalves);
  KeyRecord plain(spec, kRows), odd(spec, kRows);
  fill(plain, spec);
  fill(odd, spec);
  for (int row = 0; row < kProfileSkipped; ++row) odd.key(1, row, 1)[2] = odd.query(1, row, 3)[2] = 1e6f;
  EXPECT_EQ(plain.profiles()[1].mean, odd.profiles()[1].mean);
  EXPECT_EQ(plain.profiles()[1].gain, odd.profiles()[1].gain);
}

TEST(KeyProfile, DimensionsWithoutMeaningHaveFiniteGains) {
  const ModelSpec spec = small_spec(RopeSpec::Pairing::kHalves);
  KeyRecord silent(spec, kRows);
  const std::vector<KeyProfile> of_silence = silent.profiles();
  for (float gain : of_silence[0].gain) EXPECT_EQ(gain, 1);
  KeyRecord odd(spec, 1);
  odd.query(0, 0, 0)[0] = 1e30f;
  odd.key(0, 0, 0)[1] = std::nanf("");
  const std::vector<KeyProfile> of_odd_values = odd.profiles();
  for (float gain : of_odd_values[0].gain) EXPECT_TRUE(std::isfinite(gain) && gain > 0);
}

}  // namespace
}  // namespace quire
