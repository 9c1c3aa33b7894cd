#include "engine/request_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace quire {
namespace {

constexpr int kVocab = 1 << 30;  // so large that two random tokens never agree by chance

int64_t common_prefix(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

// Families of prompts: ids continue those of an earlier request or begin anew.
RequestTrace random_trace(uint32_t seed, int block_tokens) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  RequestTrace trace{.requests = {}, .block_tokens = static_cast<double>(block_tokens)};
  int64_t fresh = 0;
  for (int i = 0; i < 60; ++i) {
    TracedRequest request{.arrival_ms = static_cast<double>(i),
                          .output_tokens = 1 + static_cast<int>(below(9))};
    if (i > 0 && below(4) != 0) {
      const auto& earlier = trace.requests[below(trace.requests.size())].block_ids;
      request.block_ids.assign(earlier.begin(),
                               earlier.begin() + static_cast<int64_t>(below(earlier.size() + 1)));
    }
    for (size_t more = below(4) + (request.block_ids.empty() ? 1 : 0); more > 0; --more)
      request.block_ids.push_back(fresh++);
    const int cut = static_cast<int>(below(static_cast<size_t>(block_tokens)));
    request.prompt_tokens = static_cast<int>(request.block_ids.size()) * block_tokens - cut;
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

// Against the prompts themselves: the longest beginning that any earlier prompt has.
TEST(InfiniteCache, ServesTheLongestCommonPrefix) {
  int64_t all = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const double scale = seed % 4 == 0 ? 1 : 0.13 * (1 + seed % 4);
    const RequestTrace trace = cut_trace(random_trace(seed, 12), {.scale = scale});
    InfiniteCache cache(trace);
    std::vector<std::vector<TokenId>> prompts;
    for (size_t i = 0; i < trace.requests.size(); ++i) {
      prompts.push_back(traced_prompt(trace, i, kVocab));
      int64_t longest = 0;
      for (size_t j = 0; j < i; ++j) longest = std::max(longest, common_prefix(prompts[i], prompts[j]));
      longest = std::min<int64_t>(longest, std::ssize(prompts[i]) - 1);
      ASSERT_EQ(cache.serve(i), longest) << "seed " << seed << ", request " << i;
      all += longest;
    }
  }
  EXPECT_GT(all, 5000);
}

TEST(RequestTrace, PromptsHaveTheirLengthAndStayInTheVocabulary) {
  const RequestTrace trace = cut_trace(random_trace(3, 512), {.scale = 0.03, .requests_max = 20});
  ASSERT_EQ(trace.requests.size(), 20u);
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    const std::vector<TokenId> prompt = traced_prompt(trace, i, 7);
    EXPECT_EQ(std::ssize(prompt), trace.requests[i].prompt_tokens);
    EXPECT_TRUE(std::ranges::all_of(prompt, [](TokenId id) { return id >= 0 && id < 7; }));
    EXPECT_EQ(prompt, traced_prompt(trace, i, 7));
  }
}

TEST(RequestTrace, PromptsWithoutIdsHaveNothingInCommon) {
  RequestTrace trace{
      .requests = {{.prompt_tokens = 20, .output_tokens = 1}, {.prompt_tokens = 20, .output_tokens = 1}}};
  EXPECT_EQ(common_prefix(traced_prompt(trace, 0, kVocab), traced_prompt(trace, 1, kVocab)), 0);
  InfiniteCache cache(trace);
  EXPECT_EQ(cache.serve(0) + cache.serve(1), 0);
}

TEST(RequestTrace, ScalesLengthsAndNeverBelowOneToken) {
  RequestTrace trace{
      .requests = {{.prompt_tokens = 1000, .output_tokens = 1}, {.prompt_tokens = 4, .output_tokens = 30}}};
  const RequestTrace tenth = cut_trace(trace, {.scale = 0.1});
  EXPECT_EQ(tenth.requests[0].prompt_tokens, 100);
  EXPECT_EQ(tenth.requests[0].output_tokens, 1);
  EXPECT_EQ(tenth.requests[1].prompt_tokens, 1);
  EXPECT_EQ(tenth.requests[1].output_tokens, 3);
  EXPECT_EQ(tenth.edge(10), 512);
  EXPECT_EQ(longest_request(tenth), 101);
  EXPECT_EQ(cut_trace(trace, {.requests_max = 1}).requests.size(), 1u);
}

}  // namespace
}  // namespace quire
