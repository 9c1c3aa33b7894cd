// The determinism duty for every type of KV: whatever the chunk size, thread count, neighbours, block size,
// placement, shared blocks or instruction set, the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "tests/model_runner.h"
#include "tests/model_sameness.h"
#include "tests/tiny_model.h"

namespace quire::test {
namespace {

constexpr int kStepTokens = 320;
// Whole blocks, and more than a span of attention.
constexpr int kSharedTokens = 320;

struct CodecCase {
  std::string name;
  TinyModel model;
  KvType kv_type = KvType::kF16;
};

void PrintTo(const CodecCase& codec, std::ostream* out) {
  *out << codec.name;
}

std::vector<CodecCase> codec_cases() {
  const std::pair<const char*, TinyModel> models[] = {
      {"llama", {.heads = 3, .kv_heads = 1, .type = TensorType::kQ4_0}},
      {"bias", {.architecture = "qwen2", .heads = 14, .kv_heads = 2, .head_dim = 16}},
      {"window", {.architecture = "gemma3", .layers = 6, .heads = 4, .kv_heads = 2, .window = 40}},
  };
  std::vector<CodecCase> cases;
  for (KvType type :
       {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kFp8, KvType::kInt8, KvType::kInt4}) {
    for (const auto& [name, model] : models) {
      cases.push_back({std::string(kv_type_name(type)) + "_" + name, model, type});
    }
  }
  cases.push_back({"int4_odd_size", {.heads = 4, .kv_heads = 2, .head_dim = 24}, KvType::kInt4});
  return cases;
}

class KvCodecSameness : public testing::TestWithParam<CodecCase> {
 protected:
  std::unique_ptr<ModelRunner> open(RunnerOptions options) {
    options.kv_type = GetParam().kv_type;
    options.step_tokens_max = options.step_logits_max = kStepTokens;
    options.kv_tokens = 1024;
    return file_.open(options);
  }

  std::vector<TokenId> ids(int count) { return random_ids(random_, count, GetParam().model.vocab_size); }

  // What one thread answers to each prompt alone, in one piece.
  std::vector<Prompt> answered(const std::vector<std::vector<TokenId>>& prompts,
                               const std::string& isa = "") {
    auto reference = open({.isa = isa, .threads = 1});
    std::vector<Prompt> made;
    for (const std::vector<TokenId>& prompt : prompts) {
      made.push_back({prompt, run_alone(*reference, prompt, kStepTokens)});
      for (float value : made.back().alone) EXPECT_TRUE(std::isfinite(value));
    }
    return made;
  }

  std::mt19937 random_{7};
  const TinyFile file_{GetParam().model};
};

TEST_P(KvCodecSameness, ChunksThreadsNeighboursPlacementAndBlockSizes) {
  const std::vector<Prompt> prompts = answered({ids(300), ids(33), ids(1), ids(70)});
  unsigned seed = 1;
  for (int threads : {1, 3, 8}) {
    for (int block_tokens : {2, 32}) {
      auto runner = open({.threads = threads, .block_tokens = block_tokens, .placement = ++seed});
      ASSERT_NO_FATAL_FAILURE(run_together(*runner, prompts, seed))
          << threads << " threads, blocks of " << block_tokens;
    }
  }
  auto runner = open({.threads = 2});
  for (int chunk : {1, 7, 100}) {
    ASSERT_EQ(run_alone(*runner, prompts[0].ids, chunk), prompts[0].alone) << "chunk " << chunk;
  }
}

TEST_P(KvCodecSameness, EveryInstructionSet) {
  const std::vector<Prompt> prompts = answered({ids(300), ids(33)}, "scalar");
  for (const KernelTable* kernels : available_kernels()) {
    auto runner = open({.isa = std::string(kernels->name), .threads = 2, .placement = 5});
    ASSERT_NO_FATAL_FAILURE(run_together(*runner, prompts, 3)) << kernels->name;
  }
}

TEST_P(KvCodecSameness, SequencesThatShareBlocks) {
  const std::vector<TokenId> shared = ids(kSharedTokens);
  std::vector<std::vector<TokenId>> family;
  for (int i = 0; i < 4; ++i) {
    family.push_back(shared);
    for (TokenId id : ids(1 + 7 * i)) family.back().push_back(id);
  }
  const std::vector<Prompt> prompts = answered(family);
  for (int block_tokens : {2, 32}) {
    auto runner = open({.threads = 2, .block_tokens = block_tokens, .placement = 6});
    TestSequence prefix;
    runner->prefill(prefix, shared, kStepTokens, kSharedTokens, [](Position, std::span<const float>) {});
    const std::vector<TestSequence> forks(family.size(), prefix);
    ASSERT_NO_FATAL_FAILURE(continue_together(*runner, prompts, forks, 4)) << "blocks of " << block_tokens;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KvCodecSameness, testing::ValuesIn(codec_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quire::test
