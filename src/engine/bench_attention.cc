// Attention over a paged cache: one layer of a model with grouped heads, its blocks in no order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "engine/bench_variants.h"
#include "engine/round_order.h"

namespace quire {
namespace {

// Of Qwen2.5-1.5B.
constexpr int kHeads = 12;
constexpr int kKvHeads = 2;
constexpr int kHeadDim = 128;
constexpr int kWidth = kHeads * kHeadDim;

constexpr int kBlockTokens = kDefaultBlockTokens;
constexpr int kEncodedBlocks = 64;  // that differ; the others are copies
constexpr int kPastMax = 2048;      // of a prefill, and what sequences share

// The K and V of one layer in one type, with blocks for several sequences. Any thread may read.
class LayerMemory {
 public:
  struct Size {
    size_t bytes = 0;
    int blocks_min = 1;  // even when they take more
  };
  static Result<std::shared_ptr<LayerMemory>> make(KvType type, const Size& size, ThreadPool& team) {
    const size_t head_bytes = kv_head_bytes(type, kBlockTokens, kHeadDim, kHeadDim);
    const size_t blocks =
        std::max(static_cast<size_t>(size.blocks_min), size.bytes / (head_bytes * kKvHeads));
    PageArena arena =
        TRY(PageArena::reserve(blocks * head_bytes * kKvHeads, PageAdvice::kHuge, "K and V to measure with"));
    std::shared_ptr<LayerMemory> memory(new LayerMemory(std::move(arena), type, head_bytes));
    memory->encode(static_cast<int>(blocks), team);
    return memory;
  }

  [[nodiscard]] const AttentionLayer& layer() const { return layer_; }
  [[nodiscard]] int blocks() const { return static_cast<int>(arena_.size() / layer_.kv.block_stride); }
  [[nodiscard]] double token_bytes() const {
    return static_cast<double>(layer_.kv.block_stride) / kBlockTokens;
  }

 private:
  LayerMemory(PageArena arena, KvType type, size_t head_bytes) : arena_(std::move(arena)) {
    layer_.kv = {.base = arena_.data(),
                 .block_stride = head_bytes * kKvHeads,
                 .head_stride = head_bytes,
                 .block_tokens = kBlockTokens,
                 .kv_heads = kKvHeads,
                 .key_dim = kHeadDim,
                 .value_dim = kHeadDim,
                 .type = type};
    layer_.heads = kHeads;
    layer_.score_scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  }

  void encode(int blocks, ThreadPool& team) {
    const int encoded = std::min(kEncodedBlocks, blocks);
    const AttentionKernels& kernels = find_kernels("")->attention;
    const std::vector<float> values =
        random_floats(static_cast<size_t>(encoded) * kBlockTokens * kKvHeads * 2 * kHeadDim, 4);
    const float* next = values.data();
    for (int block = 0; block < encoded; ++block) {
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        for (int head = 0; head < kKvHeads; ++head, next += 2 * kHeadDim)
          kernels.write_kv(layer_.kv, BlockId{block}, slot, head, next, next + kHeadDim);
      }
    }
    const size_t bytes = layer_.kv.block_stride;
    team.run([&](int member) {
      const Share share = share_of(blocks - encoded, member, team.size());
      for (int64_t i = share.begin; i < share.end; ++i) {
        std::memcpy(arena_.data() + static_cast<size_t>(encoded + i) * bytes,
                    arena_.data() + static_cast<size_t>(i % encoded) * bytes, bytes);
      }
    });
  }

  PageArena arena_;
  AttentionLayer layer_;
};

// What a step looks like.
struct StepShape {
  BenchKernel kernel = BenchKernel::kAttentionDecode;
  int sequences = 1;
  int rows = 1;    // of each sequence
  int common = 0;  // tokens that all have in the same blocks
  int past = 0;    // tokens before the first row

  [[nodiscard]] int own_blocks() const { return ceil_div(past + rows - common, kBlockTokens); }
  [[nodiscard]] int blocks() const { return common / kBlockTokens + sequences * own_blocks(); }
  // Bytes of K and V that must be read, and operations: two products of q or probabilities with a head.
  [[nodiscard]] Work work(double token_bytes) const {
    const double stored = common + static_cast<double>(sequences) * (past + rows - common);
    const double seen = static_cast<double>(sequences) * rows * (past + (rows + 1) / 2.0);
    return {stored * token_bytes, seen * kHeads * 4 * kHeadDim};
  }
};

StepShape step_shape(BenchKernel kernel, int depth) {
  const int past = std::min(depth, kPastMax) / kSpanTokens * kSpanTokens;
  switch (kernel) {
    case BenchKernel::kAttentionPrefill:
      return {.kernel = kernel, .rows = kBenchPrefillRows, .past = past};
    case BenchKernel::kAttentionShared:
      return {.kernel = kernel, .sequences = kBenchSharingSequences, .common = past, .past = past};
    default:
      return {.kernel = kernel, .past = depth};
  }
}

// Steps of one shape over different blocks of one memory, planned for a number of threads. run() by one
// thread at a time.
class AttentionSteps {
 public:
  AttentionSteps(std::shared_ptr<LayerMemory> memory, const StepShape& shape, int threads)
      : memory_(std::move(memory)), shape_(shape) {
    const std::vector<int> order = round_order(1, 0, memory_->blocks());
    for (int block : order) order_.push_back(BlockId{block});
    const int steps = memory_->blocks() / shape.blocks();
    tables_.reserve(static_cast<size_t>(steps * shape.sequences));
    size_t partials = 0;
    for (int step = 0; step < steps; ++step) {
      plans_.push_back(plan_attention(
          sequences_of(step),
          {.heads = kHeads, .kv_heads = kKvHeads, .threads = threads, .block_tokens = kBlockTokens}));
      partials = std::max(partials, attention_partial_floats(plans_.back(), kHeadDim));
    }
    const size_t row_floats = static_cast<size_t>(shape.sequences * shape.rows) * kWidth;
    q_ = random_floats(row_floats, 5);
    out_.resize(row_floats);
    partials_.resize(partials + 16);
  }

  void run(const KernelTable& kernels, ThreadPool& team, int64_t count) {
    auto* partials =
        reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(partials_.data()) + 63) & ~uintptr_t{63});
    const AttentionBuffers buffers{q_.data(), kWidth, out_.data(), kWidth, partials};
    const AttentionLayer& layer = memory_->layer();
    team.run([&](int member) {
      const auto part = static_cast<size_t>(member);
      for (int64_t i = 0; i < count; ++i) {
        const AttentionPlan& plan = plans_[(next_ + static_cast<size_t>(i)) % plans_.size()];
        for (const AttentionItem& item : plan.items[part])
          kernels.attention.attend(layer, plan, item, buffers);
        team.barrier();
        for (const AttentionItem& item : plan.merges[part])
          kernels.attention.merge(layer, plan, item, buffers);
        team.barrier();
      }
    });
    next_ = (next_ + static_cast<size_t>(count)) % plans_.size();
  }

 private:
  std::vector<AttentionSequence> sequences_of(int step) {
    const auto common = static_cast<size_t>(shape_.common / kBlockTokens);
    const auto own = static_cast<size_t>(shape_.own_blocks());
    auto block = static_cast<size_t>(step) * static_cast<size_t>(shape_.blocks());
    const auto take = [&](size_t count, std::vector<BlockId>& table) {
      for (size_t i = 0; i < count; ++i) table.push_back(order_[block++]);
    };
    std::vector<BlockId> prefix;
    take(common, prefix);
    std::vector<AttentionSequence> sequences;
    for (int s = 0; s < shape_.sequences; ++s) {
      std::vector<BlockId>& table = tables_.emplace_back(prefix);
      take(own, table);
      sequences.push_back({table, shape_.past, shape_.rows, s * shape_.rows});
    }
    return sequences;
  }

  const std::shared_ptr<LayerMemory> memory_;
  const StepShape shape_;
  std::vector<BlockId> order_;
  std::vector<std::vector<BlockId>> tables_;  // that the plans refer to
  std::vector<AttentionPlan> plans_;
  std::vector<float> q_, out_, partials_;
  size_t next_ = 0;
};

// A piece is one step.
BenchVariant attention_variant(const KernelFigure& figure, const Work& work,
                               const std::shared_ptr<AttentionSteps>& steps) {
  BenchVariant variant;
  variant.figure = figure;
  variant.piece = work;
  variant.run = [&kernels = *find_kernels(figure.isa), steps](ThreadPool& team, int64_t count) {
    steps->run(kernels, team, count);
  };
  return variant;
}

bool is_attention(BenchKernel kernel) {
  return kernel == BenchKernel::kAttentionDecode || kernel == BenchKernel::kAttentionPrefill ||
         kernel == BenchKernel::kAttentionShared;
}

}  // namespace

Result<void> add_attention(const KernelBenchOptions& options, ThreadPool& team,
                           std::vector<BenchVariant>& variants) {
  if (std::ranges::none_of(options.kernels, is_attention)) return {};
  LayerMemory::Size size{.bytes = options.set_bytes};
  for (BenchKernel kernel : options.kernels) {
    if (is_attention(kernel))
      size.blocks_min = std::max(size.blocks_min, step_shape(kernel, options.depth).blocks());
  }
  for (KvType type : options.kv_types) {
    const auto memory = TRY(LayerMemory::make(type, size, team));
    for (BenchKernel kernel : options.kernels) {
      if (!is_attention(kernel)) continue;
      const StepShape shape = step_shape(kernel, options.depth);
      for (int threads : options.threads) {
        const auto steps = std::make_shared<AttentionSteps>(memory, shape, threads);
        for (const std::string& isa : options.isas) {
          const KernelFigure figure{.kernel = kernel,
                                    .type = std::string(kv_type_name(type)),
                                    .rows = shape.sequences * shape.rows,
                                    .isa = isa,
                                    .threads = threads,
                                    .bytes_bound = CeilingKind::kMemoryRead,
                                    .operations_bound = CeilingKind::kFloatFma};
          variants.push_back(attention_variant(figure, shape.work(memory->token_bytes()), steps));
        }
      }
    }
  }
  return {};
}

}  // namespace quire
