// The kernels timed alone, beside what the machine does at most: what `quire bench kernels` runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "core/kv_geometry.h"
#include "core/tensor_type.h"
#include "engine/roofline.h"

namespace quire {

enum class BenchKernel : uint8_t {
  kMatmul,            // int8 activations
  kMatmulWide,        // 14-bit activations
  kMatmulFloat,       // float32 activations
  kQuantize,          // a row to int8
  kQuantizeWide,      // a row to 14 bits
  kRmsNorm,           // a row
  kAttentionDecode,   // one row of one sequence
  kAttentionPrefill,  // many rows of one sequence
  kAttentionShared    // one row each of many sequences with a prefix in common
};
[[nodiscard]] std::string_view bench_kernel_name(BenchKernel kernel);
[[nodiscard]] std::span<const BenchKernel> bench_kernels();

// Kinds of what a machine does at most.
enum class CeilingKind : uint8_t {
  kNone,
  kMemoryRead,
  kCacheRead,
  kFloatFma,
  kInt8Dot,
  kInt8DotSum32,
  kInt16Dot
};
// "memory_read" …; "" for kNone.
[[nodiscard]] std::string_view ceiling_name(CeilingKind kind);
// Whether its rates are bytes per second; else operations per second.
[[nodiscard]] constexpr bool is_read(CeilingKind kind) {
  return kind == CeilingKind::kMemoryRead || kind == CeilingKind::kCacheRead;
}

inline constexpr int kBenchOutputs = 3840;     // of each matrix
inline constexpr int kBenchThreadsMax = 240;   // each has at least one panel of a matrix
inline constexpr int kBenchPrefillRows = 128;  // of an attention_prefill
inline constexpr int kBenchSharingSequences = 16;

// The product of all that is listed is measured, as far as the kernels exist: types without codes have float
// products alone. Names of ISAs, as in MachineInfo; thread counts in [1, kBenchThreadsMax].
struct KernelBenchOptions {
  std::vector<std::string> isas;
  std::vector<BenchKernel> kernels;
  std::vector<TensorType> types;
  std::vector<KvType> kv_types;
  std::vector<int> rows;
  std::vector<int> threads;          // of the kernels
  std::vector<int> ceiling_threads;  // of the ceilings; those of the kernels are among them
  int in = 0;                        // inputs of each matrix: whole blocks of every type
  int depth = 0;                     // tokens in the cache before a decoded row
  size_t set_bytes = 0;
  uint64_t seed = 0;
};

// Bytes that weights, and K and V of each type, should take: more than the caches hold.
[[nodiscard]] size_t default_set_bytes();

// All rates are of `threads` threads together, in the order of the rounds.
struct CeilingFigure {
  std::string isa;
  CeilingKind kind = CeilingKind::kNone;
  int threads = 0;
  std::vector<double> rates;  // bytes or operations per second
};

struct KernelFigure {
  BenchKernel kernel = BenchKernel::kMatmul;
  std::string type;  // of the weights, or of K and V; "" where there are none
  int rows = 1;
  std::string isa;
  int threads = 0;
  Work work;                                     // of one call
  CeilingKind bytes_bound = CeilingKind::kNone;  // what limits work.bytes
  CeilingKind operations_bound = CeilingKind::kNone;
  std::vector<double> seconds;  // of one call: a product with a whole matrix, a row, a layer's attention
};

struct BenchVariant;  // bench_variants.h

// Owned by the command's thread, which is member 0 of every pool. Invariants: (1) a round measures every
// variant once, in a random order; (2) no variant finds in the caches what another, or itself, read from
// memory before, unless set_bytes is less than the caches. Cost: set_bytes for weights and for each type of
// K and V; a round takes some 10 ms a variant.
class KernelBench {
 public:
  // Takes memory, touches it, and finds out how much of each variant fits a sample. Errors:
  // kResourceExhausted; kInvalidArgument when nothing is selected.
  static Result<std::unique_ptr<KernelBench>> make(const KernelBenchOptions& options);
  ~KernelBench();

  void measure_round();

  [[nodiscard]] int variants() const;
  [[nodiscard]] int rounds() const { return rounds_; }
  [[nodiscard]] std::vector<CeilingFigure> ceilings() const;
  [[nodiscard]] std::vector<KernelFigure> kernels() const;

 private:
  explicit KernelBench(uint64_t seed);
  double time(const BenchVariant& variant, int64_t count);
  void calibrate(BenchVariant& variant);

  const MonotonicClock clock_;
  const uint64_t seed_;
  int rounds_ = 0;
  std::map<int, std::unique_ptr<ThreadPool>> pools_;  // by their size
  std::vector<BenchVariant> variants_;
};

}  // namespace quire
