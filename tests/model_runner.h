// Runs a model without an engine: sequences with their own blocks, steps as a test asks for them.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/checked.h"
#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "files/gguf_file.h"
#include "kv/kv_store.h"
#include "model/model.h"

namespace quire::test {

struct RunnerOptions {
  std::string isa;  // "" = the best
  int threads = 0;  // 0 = all usable CPUs
  Arithmetic arithmetic = Arithmetic::kInt8Activations;
  ActivationPrecision precision = {};
  KvType kv_type = KvType::kF16;
  int block_tokens = kDefaultBlockTokens;
  int kv_tokens = 2048;  // that the store holds, for each layer group
  int step_tokens_max = 256;
  int step_logits_max = 256;
  unsigned placement = 0;  // blocks are handed out in order (0) or shuffled by this seed
  PackedCacheOptions packed_cache = {};
};

// A sequence and the blocks that it was given. Blocks are never given back: a runner is for one test.
struct TestSequence {
  Position length = 0;
  std::array<std::vector<BlockId>, kLayerGroupsMax> blocks;
};

// What a step does for one sequence. logits_from as in PlannedSequence.
struct StepPart {
  TestSequence* sequence = nullptr;
  std::span<const TokenId> tokens;
  int logits_from = 0;
};

using RowVisitor = FunctionRef<void(Position position, std::span<const float> logits)>;

class ModelRunner {
 public:
  static Result<std::unique_ptr<ModelRunner>> open(const std::string& path, const RunnerOptions& options) {
    GgufFile file = TRY(GgufFile::open(path));
    return open(file, options);
  }

  static Result<std::unique_ptr<ModelRunner>> open(const GgufFile& file, const RunnerOptions& options) {
    auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(options));
    const KernelTable* kernels = find_kernels(options.isa);
    CHECK(kernels != nullptr);
    runner->model_ = TRY(Model::load(file, {.kernels = kernels,
                                            .pool = &runner->pool_,
                                            .arithmetic = options.arithmetic,
                                            .precision = options.precision,
                                            .step_tokens_max = options.step_tokens_max,
                                            .step_logits_max = options.step_logits_max,
                                            .packed_cache = options.packed_cache}));
    TRY(runner->reset());
    return runner;
  }

  Model& model() { return *model_; }
  KvStore& kv() { return *kv_; }

  // A fresh store: every sequence made before is gone.
  Result<> reset() {
    KvGeometry geometry = model_->spec().kv_geometry(options_.kv_type);
    geometry.block_tokens = options_.block_tokens;
    int count = ceil_div(options_.kv_tokens, options_.block_tokens) + 1;
    kv_ = TRY(KvStore::create(geometry, std::vector<int>(geometry.groups.size(), count)));
    std::mt19937 random(options_.placement);
    for (size_t group = 0; group < geometry.groups.size(); ++group) {
      free_[group].clear();
      for (int block = 0; block < count; ++block) free_[group].push_back(BlockId{block});
      if (options_.placement != 0) std::ranges::shuffle(free_[group], random);
    }
    return {};
  }

  LogitsView step(std::span<const StepPart> parts) {
    StepPlan plan;
    for (const StepPart& part : parts) {
      TestSequence& sequence = *part.sequence;
      grow(sequence, sequence.length + static_cast<Position>(part.tokens.size()));
      PlannedSequence planned{.seq = {plan.sequences.size()},
                              .first_position = sequence.length,
                              .tokens = part.tokens,
                              .logits_from = part.logits_from};
      for (int group = 0; group < kLayerGroupsMax; ++group)
        planned.block_table[group] = sequence.blocks[group];
      plan.sequences.push_back(planned);
      sequence.length += static_cast<Position>(part.tokens.size());
    }
    return model_->forward(plan, *kv_);
  }

  // Appends `ids` to the sequence in chunks; visits the logits of every position from `visit_from` on.
  void prefill(TestSequence& sequence, std::span<const TokenId> ids, int chunk, Position visit_from,
               RowVisitor visit) {
    while (!ids.empty()) {
      auto count = static_cast<int>(std::min<size_t>(chunk, ids.size()));
      Position first = sequence.length;
      StepPart part{&sequence, ids.first(count), std::clamp(visit_from - first, 0, count)};
      LogitsView logits = step({&part, 1});
      for (int row = 0; row < logits.row_count(); ++row)
        visit(first + part.logits_from + row, logits.row(row));
      ids = ids.subspan(count);
    }
  }

  [[nodiscard]] int chunk_max() const { return std::min(options_.step_tokens_max, options_.step_logits_max); }

 private:
  explicit ModelRunner(const RunnerOptions& options)
      : options_(options),
        pool_(options.threads > 0 ? options.threads : static_cast<int>(usable_cpus().size())) {}

  void grow(TestSequence& sequence, Position length) {
    for (size_t group = 0; group < kv_->geometry().groups.size(); ++group) {
      while (static_cast<Position>(sequence.blocks[group].size()) * options_.block_tokens < length) {
        CHECK(!free_[group].empty());
        sequence.blocks[group].push_back(free_[group].back());
        free_[group].pop_back();
      }
    }
  }

  RunnerOptions options_;
  ThreadPool pool_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvStore> kv_;
  std::array<std::vector<BlockId>, kLayerGroupsMax> free_;
};

}  // namespace quire::test
