// The determinism duty: the logits of a row depend on that row's tokens and positions only. Whatever the
// chunk size, thread count, block placement, neighbours or instruction set: the same bits.
#include "tests/model_sameness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "tests/data_paths.h"
#include "tests/model_runner.h"
#include "tests/tiny_model.h"

namespace quire::test {
namespace {

// --- tiny models of many shapes ---

struct TinyCase {
  std::string name;
  TinyModel model;
  Arithmetic arithmetic = Arithmetic::kInt8Activations;
  ActivationPrecision precision = {};
  KvType kv_type = KvType::kF16;
};

void PrintTo(const TinyCase& tiny, std::ostream* out) {
  *out << tiny.name;
}

std::vector<TinyCase> tiny_cases() {
  using enum TensorType;
  auto all = [](ActivationCodes codes) { return ActivationPrecision{codes, codes, codes, codes, codes}; };
  ActivationPrecision wide = all(ActivationCodes::kWide);
  ActivationPrecision int8 = all(ActivationCodes::kInt8);
  std::vector<TinyCase> cases = {
      {.name = "gqa1", .model = {.heads = 3, .kv_heads = 3, .type = kQ4_0, .other_type = kQ8_0}},
      {.name = "gqa3", .model = {.heads = 3, .kv_heads = 1, .type = kQ4_1}, .precision = int8},
      {.name = "gqa7_bias",
       .model = {.architecture = "qwen2", .heads = 14, .kv_heads = 2, .head_dim = 16, .type = kQ5_0},
       .kv_type = KvType::kF32},
      {.name = "window_qk_norm",
       .model =
           {.architecture = "gemma3", .layers = 7, .heads = 4, .kv_heads = 1, .window = 40, .type = kQ5_1}},
      {.name = "wide",
       .model = {.heads = 4, .kv_heads = 2, .type = kQ4_1, .other_type = kQ5_0},
       .precision = wide},
      {.name = "k_quants",
       .model = {.layers = 1,
                 .width = 256,
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = 64,
                 .ffn_width = 512,
                 .type = kQ4_K,
                 .other_type = kQ6_K}},
      {.name = "float_weights",
       .model = {.width = 48,
                 .heads = 6,
                 .kv_heads = 2,
                 .head_dim = 8,
                 .ffn_width = 172,
                 .type = kF16,
                 .other_type = kBF16}},
      {.name = "mixed_float_int8", .model = {.heads = 2, .kv_heads = 2, .type = kIQ4_NL, .other_type = kF32}},
      {.name = "exact",
       .model = {.heads = 6, .kv_heads = 2, .type = kQ4_0, .other_type = kQ8_0},
       .arithmetic = Arithmetic::kFloat32,
       .kv_type = KvType::kF32},
  };
  return cases;
}

class TinySameness : public testing::TestWithParam<TinyCase> {
 protected:
  // What one thread answers to each prompt alone, in one piece.
  void make_prompts(const std::string& isa) {
    std::mt19937 random(7);
    auto reference = open({.isa = isa, .threads = 1});
    // 300 tokens reach into the second span of attention and leave every window.
    for (int count : {300, 33, 1, 120}) {
      Prompt prompt{random_ids(random, count, GetParam().model.vocab_size), {}};
      prompt.alone = run_alone(*reference, prompt.ids, 320);
      for (float value : prompt.alone) ASSERT_TRUE(std::isfinite(value));
      prompts_.push_back(std::move(prompt));
    }
  }

  std::unique_ptr<ModelRunner> open(RunnerOptions options) {
    options.arithmetic = GetParam().arithmetic;
    options.precision = GetParam().precision;
    options.kv_type = GetParam().kv_type;
    options.step_tokens_max = options.step_logits_max = 320;
    options.kv_tokens = 1024;
    return file_.open(options);
  }

  const TinyFile file_{GetParam().model};
  std::vector<Prompt> prompts_;
};

TEST_P(TinySameness, AnyChunk) {
  ASSERT_NO_FATAL_FAILURE(make_prompts(""));
  auto runner = open({.threads = 2});
  for (int chunk : {1, 2, 7, 32, 100}) {
    for (const Prompt& prompt : prompts_) {
      ASSERT_EQ(run_alone(*runner, prompt.ids, chunk), prompt.alone) << "chunk " << chunk;
    }
  }
}

TEST_P(TinySameness, AnyThreadCountPlacementAndNeighbours) {
  ASSERT_NO_FATAL_FAILURE(make_prompts(""));
  for (int threads : {1, 2, 3, 8}) {
    auto runner = open({.threads = threads, .placement = static_cast<unsigned>(threads) + 1});
    for (unsigned seed = 1; seed <= 2; ++seed) {
      ASSERT_NO_FATAL_FAILURE(run_together(*runner, prompts_, seed)) << threads << " threads, seed " << seed;
    }
  }
}

TEST_P(TinySameness, EveryInstructionSet) {
  ASSERT_NO_FATAL_FAILURE(make_prompts("scalar"));
  for (const KernelTable* kernels : available_kernels()) {
    auto runner = open({.isa = std::string(kernels->name), .threads = 2, .placement = 5});
    ASSERT_NO_FATAL_FAILURE(run_together(*runner, prompts_, 3)) << kernels->name;
  }
}

TEST_P(TinySameness, AnyBlockSize) {
  ASSERT_NO_FATAL_FAILURE(make_prompts(""));
  for (int block_tokens : {2, 16, 64}) {
    auto runner = open({.threads = 2, .block_tokens = block_tokens, .placement = 9});
    ASSERT_NO_FATAL_FAILURE(run_together(*runner, prompts_, 4)) << block_tokens << " tokens a block";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TinySameness, testing::ValuesIn(tiny_cases()),
                         [](const auto& info) { return info.param.name; });

// --- a real model ---

class RealSameness : public testing::Test {
 protected:
  const std::string path_ = model_path("SmolLM2-135M-Instruct.Q4_1.gguf");

  std::unique_ptr<ModelRunner> open(RunnerOptions options) {
    options.step_tokens_max = options.step_logits_max = 320;
    options.kv_tokens = 1024;
    auto runner = ModelRunner::open(path_, options);
    CHECK(runner.has_value());
    return std::move(*runner);
  }

  std::vector<Prompt> prompts(ModelRunner& runner, std::initializer_list<int> counts) {
    std::mt19937 random(11);
    std::vector<Prompt> made;
    for (int count : counts) {
      Prompt prompt{random_ids(random, count, runner.model().spec().vocab_size), {}};
      prompt.alone = run_alone(runner, prompt.ids, 320);
      made.push_back(std::move(prompt));
    }
    return made;
  }
};

TEST_F(RealSameness, ThreadsPlacementNeighboursAndChunks) {
  SKIP_WITHOUT(path_);
  std::vector<Prompt> expected = prompts(*open({.threads = 1}), {290, 37, 70});
  for (int threads : {1, 2, 3, 8}) {
    auto runner = open({.threads = threads, .placement = static_cast<unsigned>(threads)});
    ASSERT_NO_FATAL_FAILURE(run_together(*runner, expected, threads)) << threads << " threads";
  }
}

TEST_F(RealSameness, EveryInstructionSet) {
  SKIP_WITHOUT(path_);
  std::vector<Prompt> expected = prompts(*open({.isa = "scalar", .threads = 2}), {19, 6});
  for (const KernelTable* kernels : available_kernels()) {
    auto runner = open({.isa = std::string(kernels->name), .threads = 2});
    ASSERT_NO_FATAL_FAILURE(run_together(*runner, expected, 2)) << kernels->name;
  }
}

}  // namespace
}  // namespace quire::test
