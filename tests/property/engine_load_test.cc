// Many sequences at once in a pool that is too small for them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/data_paths.h"
#include "tests/property/engine_answers.h"

namespace quire::test {
namespace {

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Some answers grow beyond what admission foresees, so that the pool runs out under them.
std::vector<Request> load(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < 256; ++i) {
    const bool is_long = i < 12;
    requests.push_back({.prompt_token_ids = random_prompt(random, is_long ? 10 : 12, 40000),
                        .sampling = {.max_tokens = is_long ? 90 : 10,
                                     .temperature = 1,
                                     .seed = static_cast<uint64_t>(i),
                                     .ignore_eos = true}});
  }
  return requests;
}

TEST(EngineLoad, TwoHundredAndFiftySixSequencesRunToTheirEnd) {
  const std::string path = model_path("SmolLM2-135M-Instruct.Q4_1.gguf");
  SKIP_WITHOUT(path);
  const uint64_t block_bytes =
      open_engine({.model_path = path, .context_length = 128})->stats().pools[0].block_bytes;
  auto engine = open_engine({.model_path = path, .context_length = 128, .kv_bytes = 36 * block_bytes});
  const int total = engine->stats().pools[0].total;
  // Threads, scratch and every frame of the pool come with the first requests.
  for (const Request& request : load(1)) {
    if (request.sampling.max_tokens < 90) break;
    answer(*engine, request);
  }
  const int64_t before = resident_bytes();
  {
    std::vector<TokenStream> streams;
    const std::vector<Request> requests = load(2);
    for (const Request& request : requests) streams.push_back(submit(*engine, request));
    for (size_t i = 0; i < streams.size(); ++i) {
      const AnsweredRequest answers = read_answers(streams[i]);
      EXPECT_EQ(answers.choices[0].finish, FinishReason::kLength);
      EXPECT_EQ(answers.choices[0].ids.size(), static_cast<size_t>(requests[i].sampling.max_tokens));
    }
  }
  const EngineStats stats = engine->stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.pools[0].total, total);
  expect_pools_whole(*engine);
  // What 256 requests leave behind: no more than the allocator's slack.
  EXPECT_LT(resident_bytes() - before, 24 << 20);
}

}  // namespace
}  // namespace quire::test
