// What KernelBench can time: each kernel of each ISA on data of its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "engine/kernel_bench.h"
#include "kernels/kernel_table.h"
#include "model/page_arena.h"

namespace quire {

// One cell of the result. `run` does `count` pieces with the team; every call goes on where the last one
// ended, in data that it owns together with its neighbours.
struct BenchVariant {
  KernelFigure figure;                       // of a ceiling: kernel and type are not used
  CeilingKind ceiling = CeilingKind::kNone;  // kNone: a kernel
  Work piece;
  double pieces_per_call = 1;
  std::function<void(ThreadPool& team, int64_t count)> run;
  int64_t count = 1;  // pieces of a sample
};

// Random bytes that are weights of every type: seen as scales or floats they are ordinary numbers.
// Filled by a team, each member its share. Reading goes round: what was read last comes last again.
class WeightMemory {
 public:
  static Result<std::shared_ptr<WeightMemory>> make(size_t bytes, ThreadPool& team);

  [[nodiscard]] const std::byte* data() const { return arena_.data(); }
  [[nodiscard]] size_t size() const { return arena_.size(); }

  // The memory as slots of `slot_bytes`, of which there is at least one; the next `count` are taken.
  struct Slots {
    const std::byte* data = nullptr;
    size_t bytes = 0;
    int64_t first = 0;
    int64_t total = 1;

    [[nodiscard]] const std::byte* at(int64_t index) const {
      return data + static_cast<size_t>((first + index) % total) * bytes;
    }
  };
  [[nodiscard]] Slots take(size_t slot_bytes, int64_t count);

 private:
  explicit WeightMemory(PageArena arena) : arena_(std::move(arena)) {}

  PageArena arena_;
  size_t read_until_ = 0;
};

// The variants of `options`, appended to `variants`. They hold what they need.
void add_ceilings(const KernelBenchOptions& options, const std::shared_ptr<WeightMemory>& memory,
                  std::vector<BenchVariant>& variants);
void add_products(const KernelBenchOptions& options, const std::shared_ptr<WeightMemory>& memory,
                  std::vector<BenchVariant>& variants);
void add_row_kernels(const KernelBenchOptions& options, std::vector<BenchVariant>& variants);
// `team` encodes K and V.
Result<void> add_attention(const KernelBenchOptions& options, ThreadPool& team,
                           std::vector<BenchVariant>& variants);

// The largest thread count of the options.
[[nodiscard]] int most_threads(const KernelBenchOptions& options);
// Numbers in [-1, 1), the same for the same seed.
[[nodiscard]] std::vector<float> random_floats(size_t count, uint64_t seed);

}  // namespace quire
