#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>

#include "base/rng.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(int n, uint32_t seed, float spread = 4) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(static_cast<size_t>(n));
  for (float& x : logits) x = normal(random);
  return logits;
}

// What the oracle thinks of one row: the survivors' probabilities by id, and how near a cut came to a tie of
// rounding (then the survivors may differ).
struct OracleResult {
  std::map<TokenId, long double> probabilities{};
  long double least_margin = 1;
};

// The filters by their definitions: long double, everything sorted, nothing skipped.
class Oracle {
 public:
  OracleResult run(std::vector<long double> logits, const SamplingParams& params) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] != -kInfinity) entries_.push_back({static_cast<TokenId>(i), logits[i], 0});
    }
    for (Entry& e : entries_) e.logit /= static_cast<long double>(params.temperature);
    std::ranges::sort(entries_,
                      [](auto& a, auto& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
    if (params.top_k > 0 && entries_.size() > static_cast<size_t>(params.top_k))
      entries_.resize(params.top_k);
    normalise();
    if (params.typical_p < 1) typical(params.typical_p);
    if (params.top_p < 1) prefix(params.top_p);
    if (params.min_p > 0) minimum(params.min_p);
    OracleResult result{.least_margin = margin_};
    for (const Entry& e : entries_) result.probabilities[e.id] = e.p;
    return result;
  }

 private:
  struct Entry {
    TokenId id;
    long double logit, p;
  };
  void normalise() {
    long double most = -kInfinity, sum = 0;
    for (auto& e : entries_) most = std::max(most, e.logit);
    for (auto& e : entries_) sum += e.p = std::exp(e.logit - most);
    for (auto& e : entries_) e.p /= sum;
  }
  void prefix(long double mass) {
    long double reached = 0;
    size_t kept = 0;
    while (kept < entries_.size()) {
      reached += entries_[kept++].p;
      margin_ = std::min(margin_, std::abs(reached - mass));
      if (reached >= mass) break;
    }
    entries_.resize(kept);
    normalise();
  }
  void typical(long double mass) {
    long double entropy = 0;
    for (auto& e : entries_) entropy += e.p > 0 ? -e.p * std::log(e.p) : 0;
    auto distance = [&](const Entry& e) { return std::abs(-std::log(e.p) - entropy); };
    std::ranges::sort(entries_, [&](auto& a, auto& b) {
      return distance(a) != distance(b) ? distance(a) < distance(b) : a.id < b.id;
    });
    prefix(mass);
    std::ranges::sort(entries_,
                      [](auto& a, auto& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; });
  }
  void minimum(long double share) {
    long double least = entries_[0].p * share;
    for (auto& e : entries_) margin_ = std::min(margin_, e.p == entries_[0].p ? 1 : std::abs(e.p - least));
    std::erase_if(entries_, [&](auto& e) { return e.p < least; });
    normalise();
  }

  std::vector<Entry> entries_;
  long double margin_ = 1;
};

std::vector<long double> widened(const std::vector<float>& logits) {
  return {logits.begin(), logits.end()};
}

// The token that the inverse distribution function gives at `u`, ids ascending; -1 when `u` is too near a
// border to tell.
TokenId oracle_draw(const OracleResult& oracle, long double u) {
  long double reached = 0;
  for (const auto& [id, p] : oracle.probabilities) {
    reached += p;
    if (std::abs(reached - u) < 1e-9L) return -1;
    if (reached > u) return id;
  }
  return -1;
}

// Draws at many positions and compares with the oracle; returns how many comparisons were decisive.
int expect_draws_agree(const std::vector<float>& logits, const SamplingParams& params, uint64_t seed) {
  auto oracle = Oracle().run(widened(logits), params);
  if (oracle.least_margin < 1e-9L) return 0;
  Sampler sampler(params, {.seed = seed});
  SamplerScratch scratch;
  int decisive = 0;
  for (Position position = 0; position < 40; ++position) {
    auto choice = sampler.sample(logits, position, scratch);
    EXPECT_TRUE(choice.has_value());
    EXPECT_TRUE(oracle.probabilities.contains(choice->id)) << "filtered token " << choice->id;
    TokenId expected = oracle_draw(oracle, uniform_at(seed, static_cast<uint64_t>(position)));
    if (expected < 0) continue;
    EXPECT_EQ(choice->id, expected);
    ++decisive;
  }
  return decisive;
}

TokenId greedy(const std::vector<float>& logits, const SamplingParams& params = {}) {
  SamplerScratch scratch;
  return Sampler(params, {}).sample(logits, 0, scratch)->id;
}

TEST(LogitRow, ScansSelectsAndSumsLikeASort) {
  for (int n : {1, 2, 15, 16, 17, 255, 256, 257, 1000, 5000}) {
    auto logits = random_logits(n, static_cast<uint32_t>(n));
    if (n > 20) logits[3] = logits[n - 1] = logits[7] = -kInfinity;
    if (n > 500) logits[400] = logits[30] = *std::ranges::max_element(logits);
    LogitRow row;
    ASSERT_EQ(row.scan(logits), LogitRow::Fault::kNone);
    std::vector<TokenId> order;
    long double sum = 0;
    for (int i = 0; i < n; ++i) {
      if (logits[i] != -kInfinity) order.push_back(i);
      sum += std::exp(static_cast<long double>(logits[i]));
    }
    std::ranges::sort(order,
                      [&](int a, int b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    EXPECT_EQ(row.argmax(), order[0]);
    EXPECT_NEAR(row.logsumexp(), static_cast<double>(std::log(sum)), 1e-11);
    for (int k : {0, 1, 2, 7, 20, 100, n, n + 5}) {
      auto top = row.select_top(k);
      std::vector<TokenId> expected(order.begin(), order.begin() + std::min<size_t>(k, order.size()));
      EXPECT_EQ(std::vector<TokenId>(top.begin(), top.end()), expected) << n << " " << k;
    }
  }
}

TEST(LogitRow, ExponentialAgreesWithTheLibrary) {
  for (double x = 0; x > -720; x -= 0.37) {
    double expected = std::exp(x);
    EXPECT_NEAR(exp_nonpositive(x), expected, expected * 1e-12 + 1e-307) << x;
  }
  EXPECT_EQ(exp_nonpositive(0), 1.0);
  EXPECT_EQ(exp_nonpositive(-1e300), 0.0);
  EXPECT_EQ(exp_nonpositive(-kInfinity), 0.0);
}

TEST(LogitRow, NamesFaults) {
  LogitRow row;
  for (int at : {0, 5, 299}) {
    std::vector<float> logits(300, 1.0f);
    logits[at] = NAN;
    EXPECT_EQ(row.scan(logits), LogitRow::Fault::kNotANumber);
    logits[at] = kInfinity;
    EXPECT_EQ(row.scan(logits), LogitRow::Fault::kInfinite);
  }
  EXPECT_EQ(row.scan(std::vector<float>(300, -kInfinity)), LogitRow::Fault::kAllImpossible);
  EXPECT_EQ(row.scan({}), LogitRow::Fault::kAllImpossible);
}

TEST(Sampler, GreedyTakesTheLowestOfEquals) {
  EXPECT_EQ(greedy({0, 3, 1, 3}), 1);
  EXPECT_EQ(greedy({-kInfinity, -5, -5}), 1);
  EXPECT_EQ(greedy({7}), 0);
  SamplingParams one{.temperature = 2, .top_k = 1};
  EXPECT_EQ(greedy({0, 3, 1, 3}, one), 1);
}

TEST(Sampler, EachFilterAndAllTogetherAgreeWithTheOracle) {
  std::vector<SamplingParams> cases;
  for (float t : {1e-30f, 0.2f, 0.7f, 1.0f, 3.0f, 100.0f}) cases.push_back({.temperature = t});
  for (int k : {1, 2, 5, 40, 299, 300, 301, 1 << 30}) cases.push_back({.temperature = 1.3f, .top_k = k});
  for (float p : {1e-30f, 0.01f, 0.5f, 0.9f, 0.999f, 1.0f}) {
    cases.push_back({.temperature = 0.9f, .top_p = p});
    cases.push_back({.temperature = 0.9f, .min_p = p});
    cases.push_back({.temperature = 0.9f, .typical_p = p});
    cases.push_back({.temperature = 1.5f, .top_k = 50, .top_p = p, .min_p = 0.05f, .typical_p = 0.8f});
    cases.push_back({.temperature = 1.5f, .top_p = p, .min_p = 0.02f});
  }
  int decisive = 0;
  for (const auto& params : cases) {
    for (uint32_t seed = 0; seed < 6; ++seed) {
      decisive += expect_draws_agree(random_logits(300, seed, seed % 2 == 0 ? 4 : 0.5f), params, seed * 77);
    }
  }
  EXPECT_GT(decisive, 5000);
}

TEST(Sampler, LargeVocabulariesAgreeToo) {
  auto logits = random_logits(50001, 9, 2);
  logits[5] = -kInfinity;
  int decisive = 0;
  for (SamplingParams params : {SamplingParams{.temperature = 1},
                                {.temperature = 1, .top_k = 40},
                                {.temperature = 1, .top_p = 0.95f},
                                {.temperature = 1, .min_p = 0.02f},
                                {.temperature = 1, .top_k = 5000, .top_p = 0.9f},
                                {.temperature = 1, .typical_p = 0.4f}}) {
    decisive += expect_draws_agree(logits, params, 4242);
  }
  EXPECT_GT(decisive, 100);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.25f), std::log(0.15f), std::log(0.1f)};
  Sampler sampler({.temperature = 1}, {.seed = 3});
  SamplerScratch scratch;
  std::vector<double> counts(4);
  constexpr int kDraws = 40000;
  for (Position p = 0; p < kDraws; ++p) counts[sampler.sample(logits, p, scratch)->id] += 1;
  double chi_square = 0;
  const double expected[] = {0.5 * kDraws, 0.25 * kDraws, 0.15 * kDraws, 0.1 * kDraws};
  for (int i = 0; i < 4; ++i)
    chi_square += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  EXPECT_LT(chi_square, 16.3);  // 3 degrees of freedom, p = 0.001
}

TEST(Sampler, BiasAndPenaltiesAgreeWithTheOracle) {
  const int n = 64;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    auto token = [&] { return static_cast<TokenId>(random() % n); };
    auto real = [&](float low, float high) {
      return std::uniform_real_distribution<float>(low, high)(random);
    };
    SamplingParams params{.repetition_penalty = real(0.5f, 3),
                          .presence_penalty = real(-2, 2),
                          .frequency_penalty = real(-2, 2)};
    if (seed % 3 == 0) params.repetition_penalty = 1;
    for (int i = 0; i < 10; ++i) params.logit_bias.push_back({token(), real(-8, 8)});
    std::vector<TokenId> prompt, output;
    for (int i = 0; i < 12; ++i) prompt.push_back(token());
    Sampler sampler(params, {.prompt = prompt});
    SamplerScratch scratch;
    for (int step = 0; step < 20; ++step) {
      auto logits = random_logits(n, seed * 100 + step);
      auto expected = widened(logits);
      for (auto [id, bias] : params.logit_bias) expected[id] += bias;
      for (TokenId id = 0; id < n; ++id) {
        auto count = std::ranges::count(output, id);
        if (count + std::ranges::count(prompt, id) > 0) {
          expected[id] = expected[id] > 0 ? expected[id] / params.repetition_penalty
                                          : expected[id] * params.repetition_penalty;
        }
        if (count > 0) expected[id] -= params.presence_penalty;
        expected[id] -= static_cast<long double>(params.frequency_penalty) * count;
      }
      auto choice = sampler.sample(logits, step, scratch);
      ASSERT_TRUE(choice.has_value());
      auto best = *std::ranges::max_element(expected);
      EXPECT_NEAR(static_cast<double>(expected[choice->id]), static_cast<double>(best), 1e-5);
      output.push_back(choice->id);
      sampler.accept(choice->id);
    }
  }
}

TEST(Sampler, HostilePenaltiesStayFinite) {
  SamplingParams params{.repetition_penalty = std::numeric_limits<float>::denorm_min()};
  std::vector<TokenId> prompt = {0, 1};
  Sampler sampler(params, {.prompt = prompt});
  SamplerScratch scratch;
  EXPECT_EQ(sampler.sample(std::vector<float>{3e38f, 1, 3e38f}, 0, scratch)->id, 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{-3e38f, 1, -kInfinity}, 0, scratch)->id, 1);
}

TEST(Sampler, MinTokensMasksEndsUntilThen) {
  std::vector<TokenId> ends = {2};
  SamplingParams params{.min_tokens = 2, .stop_token_ids = {1}};
  Sampler sampler(params, {.end_tokens = ends});
  SamplerScratch scratch;
  const std::vector<float> logits = {0, 5, 9, 1};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(sampler.sample(logits, i, scratch)->id, 3);
    sampler.accept(3);
  }
  EXPECT_EQ(sampler.sample(logits, 2, scratch)->id, 2);
  EXPECT_TRUE(sampler.is_end(2));
  EXPECT_TRUE(sampler.is_end(1));
  EXPECT_FALSE(sampler.is_end(0));
  params.ignore_eos = true;
  Sampler ignoring(params, {.end_tokens = ends});
  EXPECT_EQ(ignoring.sample(logits, 0, scratch)->id, 2);
  EXPECT_FALSE(ignoring.is_end(2));
  EXPECT_TRUE(ignoring.is_end(1));
}

TEST(Sampler, LogprobsAreOfTheUnmodifiedDistribution) {
  auto logits = random_logits(1000, 5);
  SamplingParams params{
      .temperature = 0.7f, .top_k = 3, .logit_bias = {{17, 100}, {4, -100}}, .logprobs = 20};
  Sampler sampler(params, {.seed = 1});
  SamplerScratch scratch;
  auto choice = sampler.sample(logits, 0, scratch);
  EXPECT_EQ(choice->id, 17);
  long double sum = 0;
  for (float x : logits) sum += std::exp(static_cast<long double>(x));
  auto logprob = [&](TokenId id) { return static_cast<double>(logits[id] - std::log(sum)); };
  ASSERT_TRUE(choice->logprob.has_value());
  EXPECT_EQ(choice->logprob->token_id, 17);
  EXPECT_NEAR(choice->logprob->logprob, logprob(17), 1e-6);
  ASSERT_EQ(choice->top.size(), 20u);
  auto sorted = logits;
  std::ranges::sort(sorted, std::greater<>());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(logits[choice->top[i].token_id], sorted[i]);
    EXPECT_NEAR(choice->top[i].logprob, logprob(choice->top[i].token_id), 1e-6);
  }
}

TEST(Sampler, ZeroLogprobsGivesTheChosenOneOnly) {
  SamplerScratch scratch;
  SamplingParams params{.logprobs = 0};
  auto choice = Sampler(params, {}).sample(std::vector<float>{0, 0}, 0, scratch);
  EXPECT_NEAR(choice->logprob->logprob, std::log(0.5), 1e-6);
  EXPECT_TRUE(choice->top.empty());
  EXPECT_FALSE(Sampler({}, {}).sample(std::vector<float>{0, 0}, 0, scratch)->logprob.has_value());
}

TEST(Sampler, DependsOnSeedAndPositionOnly) {
  auto logits = random_logits(500, 8, 1);
  SamplerScratch mine, shared;
  Sampler a({.temperature = 1, .top_p = 0.95f}, {.seed = 11}),
      b({.temperature = 1, .top_p = 0.95f}, {.seed = 12});
  std::set<TokenId> seen;
  int different = 0;
  for (Position p = 0; p < 50; ++p) {
    auto other = b.sample(logits, p, shared)->id;
    auto token = a.sample(logits, p, shared)->id;
    EXPECT_EQ(token, a.sample(logits, p, mine)->id);
    seen.insert(token);
    different += token != other ? 1 : 0;
  }
  EXPECT_GT(seen.size(), 20u);
  EXPECT_GT(different, 30);
}

TEST(Sampler, FaultyRowsAreErrors) {
  SamplerScratch scratch;
  for (float bad : {NAN, kInfinity}) {
    auto choice = Sampler({.temperature = 1}, {}).sample(std::vector<float>{0, bad, 1}, 7, scratch);
    ASSERT_FALSE(choice.has_value());
    EXPECT_EQ(choice.error().code, ErrorCode::kInternal);
    EXPECT_EQ(choice.error().field, "logits");
    EXPECT_NE(choice.error().message.find("position 7"), std::string::npos);
  }
  std::vector<TokenId> all = {0, 1};
  EXPECT_FALSE(Sampler({.min_tokens = 1}, {.end_tokens = all})
                   .sample(std::vector<float>{0, 1}, 0, scratch)
                   .has_value());
  EXPECT_TRUE(Sampler({}, {}).sample(std::vector<float>{-kInfinity, -3e38f}, 0, scratch).has_value());
}

TEST(ValidateSampling, NamesFieldValueAndLimit) {
  struct Case {
    const char* field;
    SamplingParams params;
    const char* value;
  };
  const std::vector<Case> cases = {
      {"max_tokens", {.max_tokens = -1}, "-1"},
      {"min_tokens", {.min_tokens = -2}, "-2"},
      {"min_tokens", {.max_tokens = 3, .min_tokens = 4}, "4"},
      {"temperature", {.temperature = -0.5f}, "-0.5"},
      {"temperature", {.temperature = 101}, "101"},
      {"temperature", {.temperature = NAN}, "nan"},
      {"temperature", {.temperature = kInfinity}, "inf"},
      {"top_k", {.top_k = -1}, "-1"},
      {"top_p", {.top_p = 0}, "0"},
      {"top_p", {.top_p = 1.5f}, "1.5"},
      {"top_p", {.top_p = NAN}, "nan"},
      {"min_p", {.min_p = -0.1f}, "-0.1"},
      {"min_p", {.min_p = 1.1f}, "1.1"},
      {"typical_p", {.typical_p = 0}, "0"},
      {"repetition_penalty", {.repetition_penalty = 0}, "0"},
      {"repetition_penalty", {.repetition_penalty = 11}, "11"},
      {"presence_penalty", {.presence_penalty = 3}, "3"},
      {"frequency_penalty", {.frequency_penalty = -3}, "-3"},
      {"logprobs", {.logprobs = 21}, "21"},
      {"logprobs", {.logprobs = -1}, "-1"},
      {"logit_bias", {.logit_bias = {{100, 1.0f}}}, "100"},
      {"logit_bias", {.logit_bias = {{-1, 1.0f}}}, "-1"},
      {"logit_bias", {.logit_bias = {{5, 101.0f}}}, "101"},
      {"logit_bias", {.logit_bias = {{5, NAN}}}, "nan"},
      {"stop_token_ids", {.stop_token_ids = {100}}, "100"},
      {"stop", {.stop = {"a", ""}}, "empty"},
      {"stop", {.stop = std::vector<std::string>(17, "x")}, "17"},
  };
  for (const Case& c : cases) {
    auto result = validate_sampling(c.params, 100);
    ASSERT_FALSE(result.has_value()) << c.field << " " << c.value;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(result.error().field, c.field);
    EXPECT_NE(result.error().message.find(c.field), std::string::npos) << result.error().message;
    EXPECT_NE(result.error().message.find(c.value), std::string::npos) << result.error().message;
  }
  EXPECT_TRUE(validate_sampling({}, 100).has_value());
  SamplingParams extreme{.max_tokens = 0,
                         .temperature = 100,
                         .top_k = 1 << 30,
                         .min_p = 1,
                         .repetition_penalty = 10,
                         .presence_penalty = -2,
                         .frequency_penalty = 2,
                         .logit_bias = {{99, -100}},
                         .logprobs = 20};
  EXPECT_TRUE(validate_sampling(extreme, 100).has_value());
}

}  // namespace
}  // namespace quire
