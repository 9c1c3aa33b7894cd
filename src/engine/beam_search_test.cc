#include "engine/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "engine/beam_reference.h"

namespace quire {
namespace {

constexpr int kVocab = 9;

// A random distribution for every sequence.
std::vector<double> next_logprobs(uint32_t seed, const ReferenceTokens& tokens) {
  uint32_t hash = seed;
  for (TokenId token : tokens) hash = (hash ^ static_cast<uint32_t>(token + 1)) * 16777619u + 97;
  std::mt19937 random(hash);
  std::normal_distribution<double> normal(0, 2);
  std::vector<double> logits(kVocab);
  double sum = 0;
  for (double& x : logits) sum += std::exp(x = normal(random));
  for (double& x : logits) x -= std::log(sum);
  return logits;
}

BeamCandidates candidates_of(const std::vector<double>& logprobs, int count) {
  BeamCandidates candidates;
  for (TokenId v = 0; v < kVocab; ++v) {
    const double logprob = logprobs[static_cast<size_t>(v)];
    candidates.ranked.push_back({.id = v, .logprob = logprob, .raw_logprob = static_cast<float>(logprob)});
  }
  std::ranges::sort(candidates.ranked, std::ranges::greater(), &RankedToken::logprob);
  if (static_cast<int>(candidates.ranked.size()) > count)
    candidates.ranked.resize(static_cast<size_t>(count));
  return candidates;
}

struct Case {
  uint32_t seed = 0;
  BeamSearchParams params;
  int max_tokens = 1;
  std::set<TokenId> ends;
};

Case random_case(uint32_t seed) {
  std::mt19937 random(seed);
  auto one_of = [&](auto... values) {
    const std::vector options = {values...};
    return options[random() % options.size()];
  };
  Case c{.seed = seed};
  c.params.groups = one_of(1, 1, 1, 2, 3);
  c.params.width = c.params.groups * one_of(1, 2, 3, 4);
  c.params.length_penalty = one_of(-1.0f, 0.0f, 0.5f, 1.0f, 2.0f);
  c.params.early_stopping =
      one_of(EarlyStopping::kHeuristic, EarlyStopping::kWhenFull, EarlyStopping::kNever);
  if (c.params.groups > 1) c.params.diversity_penalty = one_of(0.0f, 0.3f, 1.0f, 5.0f);
  c.max_tokens = 1 + static_cast<int>(random() % 9);
  for (uint32_t ends = random() % 4; ends > 0; --ends) c.ends.insert(static_cast<TokenId>(random() % kVocab));
  return c;
}

std::vector<BeamResult> search(const Case& c) {
  BeamSearch beams(c.params, c.max_tokens);
  std::vector<ReferenceTokens> running(1);
  EXPECT_EQ(beams.beam_count(), 1);
  while (!running.empty()) {
    std::vector<BeamCandidates> candidates;
    for (const ReferenceTokens& tokens : running)
      candidates.push_back(candidates_of(next_logprobs(c.seed, tokens),
                                         beams.candidates_wanted(static_cast<int>(c.ends.size()))));
    std::vector<ReferenceTokens> next;
    for (const BeamMove& move :
         beams.advance(candidates, [&](int, TokenId token) { return c.ends.contains(token); })) {
      next.push_back(running.at(static_cast<size_t>(move.parent)));
      next.back().push_back(move.token);
      EXPECT_FALSE(c.ends.contains(move.token));
    }
    running = std::move(next);
    EXPECT_EQ(beams.beam_count(), static_cast<int>(running.size()));
    EXPECT_LE(beams.beam_count(), c.params.width);
  }
  return beams.results();
}

TEST(BeamSearch, EqualsThePlainReference) {
  int early_ends = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    const Case c = random_case(seed);
    const auto expected =
        BeamReference(
            c.params, c.max_tokens,
            {.next = [&](const ReferenceTokens& tokens) { return next_logprobs(seed, tokens); },
             .has_ended = [&](const ReferenceTokens& tokens) { return c.ends.contains(tokens.back()); }})
            .run();
    const std::vector<BeamResult> results = search(c);
    std::multiset<ReferenceTokens> expected_tokens, tokens;
    size_t count = 0;
    for (const auto& group : expected) {
      count += group.size();
      for (const ReferenceResult& result : group) expected_tokens.insert(result.tokens);
    }
    ASSERT_EQ(results.size(), count) << seed;
    for (const BeamResult& result : results) {
      ReferenceTokens ids;
      double sum = 0;
      for (const BeamToken& token : result.tokens) {
        ids.push_back(token.id);
        sum += static_cast<double>(token.logprob);
      }
      EXPECT_NEAR(result.logprob_sum, sum, 1e-9);
      EXPECT_EQ(result.finish, c.ends.contains(ids.back()) ? FinishReason::kStop : FinishReason::kLength);
      early_ends += static_cast<int>(ids.size()) < c.max_tokens ? 1 : 0;
      tokens.insert(ids);
    }
    EXPECT_EQ(tokens, expected_tokens) << seed;
    if (c.params.groups > 1) continue;
    for (size_t i = 0; i < count; ++i) EXPECT_NEAR(results[i].score, expected[0][i].score, 1e-9) << seed;
  }
  EXPECT_GT(early_ends, 100);
}

TEST(BeamSearch, WidthOneIsGreedy) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Case c{.seed = seed, .params = {.width = 1}, .max_tokens = 12};
    ReferenceTokens greedy;
    for (int t = 0; t < 12; ++t) {
      const auto next = next_logprobs(seed, greedy);
      greedy.push_back(static_cast<TokenId>(std::ranges::max_element(next) - next.begin()));
    }
    const auto results = search(c);
    ASSERT_EQ(results.size(), 1u);
    for (size_t t = 0; t < 12; ++t) EXPECT_EQ(results[0].tokens[t].id, greedy[t]);
  }
}

TEST(BeamSearch, AStrongPenaltyMakesGroupsDiffer) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Case c{.seed = seed, .params = {.width = 3, .groups = 3}, .max_tokens = 4};
    auto same = search(c);
    ASSERT_EQ(same.size(), 3u);
    c.params.diversity_penalty = 50;
    auto different = search(c);
    ASSERT_EQ(different.size(), 3u);
    for (size_t t = 0; t < 4; ++t) {
      std::set<TokenId> together, apart;
      for (size_t i = 0; i < 3; ++i) {
        together.insert(same[i].tokens[t].id);
        apart.insert(different[i].tokens[t].id);
      }
      EXPECT_EQ(together.size(), 1u);
      EXPECT_EQ(apart.size(), 3u);
    }
  }
}

TEST(BeamSearch, ResultsOfGroupsComeByTurns) {
  const Case c{.seed = 3, .params = {.width = 6, .groups = 3, .diversity_penalty = 1}, .max_tokens = 5};
  const auto results = search(c);
  ASSERT_EQ(results.size(), 6u);
  for (size_t i : {0u, 1u, 3u, 4u}) EXPECT_GE(results[i].score, results[i + 1].score);
}

TEST(BeamSearch, WhatEndsAtOnceIsAResult) {
  Case c{.seed = 1, .params = {.width = 3}, .max_tokens = 5};
  for (TokenId v = 0; v < kVocab; ++v) c.ends.insert(v);
  const auto results = search(c);
  ASSERT_EQ(results.size(), 3u);
  for (const BeamResult& result : results) EXPECT_EQ(result.tokens.size(), 1u);
}

}  // namespace
}  // namespace quire
