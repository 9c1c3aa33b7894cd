#include "engine/kernel_bench.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "engine/bench_variants.h"
#include "engine/engine_plan.h"
#include "engine/round_order.h"

namespace quire {
namespace {

// Long against a dispatch to the team, short enough for many rounds.
constexpr double kSampleSeconds = 8e-3;

constexpr std::array kAllKernels{
    BenchKernel::kMatmul,          BenchKernel::kMatmulWide,       BenchKernel::kMatmulFloat,
    BenchKernel::kQuantize,        BenchKernel::kQuantizeWide,     BenchKernel::kRmsNorm,
    BenchKernel::kAttentionDecode, BenchKernel::kAttentionPrefill, BenchKernel::kAttentionShared};

// Room for a whole matrix of each type, however small the set.
size_t weight_bytes(const KernelBenchOptions& options) {
  size_t bytes = options.set_bytes;
  for (TensorType type : options.types)
    bytes = std::max(bytes, packed_panel_bytes(type, options.in) * kBenchOutputs / kPanelRows);
  return bytes;
}

// Something is measured.
Result<void> check_selection(const KernelBenchOptions& options) {
  const auto needs_codes = [](BenchKernel kernel) {
    return kernel == BenchKernel::kMatmul || kernel == BenchKernel::kMatmulWide;
  };
  if (std::ranges::any_of(options.types, has_codes) || !std::ranges::all_of(options.kernels, needs_codes))
    return {};
  std::vector<std::string_view> kernels, types;
  for (BenchKernel kernel : options.kernels) kernels.push_back(bench_kernel_name(kernel));
  for (TensorType type : options.types) types.push_back(tensor_type_info(type).name);
  return fail(ErrorCode::kInvalidArgument, "kernels", "kernels: {} needs weights that are codes, not {}",
              fmt::join(kernels, " or "), fmt::join(types, " or "));
}

// All sets are in memory at once.
Result<void> check_memory(const KernelBenchOptions& options) {
  const uint64_t needed = weight_bytes(options) + uint64_t{options.set_bytes} * options.kv_types.size();
  const uint64_t usable = usable_memory_bytes();
  if (needed <= usable / 10 * 9) return {};
  return fail(
      ErrorCode::kResourceExhausted, "set_bytes",
      "set_bytes: {} bytes for the weights and for each of {} types of KV are {} in all, the memory has {}",
      options.set_bytes, options.kv_types.size(), needed, usable);
}

}  // namespace

std::string_view bench_kernel_name(BenchKernel kernel) {
  switch (kernel) {
    case BenchKernel::kMatmul:
      return "matmul";
    case BenchKernel::kMatmulWide:
      return "matmul_wide";
    case BenchKernel::kMatmulFloat:
      return "matmul_float";
    case BenchKernel::kQuantize:
      return "quantize";
    case BenchKernel::kQuantizeWide:
      return "quantize_wide";
    case BenchKernel::kRmsNorm:
      return "rms_norm";
    case BenchKernel::kAttentionDecode:
      return "attention_decode";
    case BenchKernel::kAttentionPrefill:
      return "attention_prefill";
    case BenchKernel::kAttentionShared:
      return "attention_shared";
  }
  UNREACHABLE();
}

std::span<const BenchKernel> bench_kernels() {
  return kAllKernels;
}

std::string_view ceiling_name(CeilingKind kind) {
  switch (kind) {
    case CeilingKind::kNone:
      return "";
    case CeilingKind::kMemoryRead:
      return "memory_read";
    case CeilingKind::kCacheRead:
      return "cache_read";
    case CeilingKind::kFloatFma:
      return "float_fma";
    case CeilingKind::kInt8Dot:
      return "int8_dot";
    case CeilingKind::kInt8DotSum32:
      return "int8_dot_sum32";
    case CeilingKind::kInt16Dot:
      return "int16_dot";
  }
  UNREACHABLE();
}

size_t default_set_bytes() {
  constexpr size_t kLeast = size_t{256} << 20;
  constexpr size_t kMost = size_t{512} << 20;
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp(cache > 0 ? static_cast<size_t>(cache) / 4 * 5 : 0, kLeast, kMost);
}

Result<std::unique_ptr<KernelBench>> KernelBench::make(const KernelBenchOptions& options) {
  TRY(check_selection(options));
  TRY(check_memory(options));
  std::unique_ptr<KernelBench> bench(new KernelBench(options.seed));
  for (int threads : options.ceiling_threads) bench->pools_[threads] = std::make_unique<ThreadPool>(threads);
  ThreadPool& largest = *bench->pools_.rbegin()->second;
  largest.pin_caller();
  const auto memory = TRY(WeightMemory::make(weight_bytes(options), largest));
  add_products(options, memory, bench->variants_);
  add_row_kernels(options, bench->variants_);
  TRY(add_attention(options, largest, bench->variants_));
  std::vector<BenchVariant> ceilings;
  add_ceilings(options, memory, ceilings);
  bench->variants_.insert(bench->variants_.begin(), std::make_move_iterator(ceilings.begin()),
                          std::make_move_iterator(ceilings.end()));
  for (BenchVariant& variant : bench->variants_) bench->calibrate(variant);
  return bench;
}

KernelBench::KernelBench(uint64_t seed) : seed_(seed) {}

KernelBench::~KernelBench() = default;

int KernelBench::variants() const {
  return static_cast<int>(variants_.size());
}

double KernelBench::time(const BenchVariant& variant, int64_t count) {
  ThreadPool& team = *pools_.at(variant.figure.threads);
  const int64_t begin_ns = clock_.now_ns();
  variant.run(team, count);
  return static_cast<double>(std::max<int64_t>(clock_.now_ns() - begin_ns, 1)) * 1e-9;
}

void KernelBench::calibrate(BenchVariant& variant) {
  double seconds = time(variant, 1);
  if (seconds < kSampleSeconds) seconds = std::min(time(variant, 1), time(variant, 1));
  variant.count = std::max<int64_t>(1, static_cast<int64_t>(kSampleSeconds / seconds));
}

void KernelBench::measure_round() {
  for (int index : round_order(seed_, rounds_, variants())) {
    BenchVariant& variant = variants_[static_cast<size_t>(index)];
    const double seconds = time(variant, variant.count) / static_cast<double>(variant.count);
    variant.figure.seconds.push_back(seconds * variant.pieces_per_call);
  }
  ++rounds_;
}

std::vector<CeilingFigure> KernelBench::ceilings() const {
  std::vector<CeilingFigure> figures;
  for (const BenchVariant& variant : variants_) {
    if (variant.ceiling == CeilingKind::kNone) continue;
    CeilingFigure figure{
        .isa = variant.figure.isa, .kind = variant.ceiling, .threads = variant.figure.threads};
    const double amount = is_read(variant.ceiling) ? variant.piece.bytes : variant.piece.operations;
    for (double seconds : variant.figure.seconds) figure.rates.push_back(amount / seconds);
    figures.push_back(std::move(figure));
  }
  return figures;
}

std::vector<KernelFigure> KernelBench::kernels() const {
  std::vector<KernelFigure> figures;
  for (const BenchVariant& variant : variants_) {
    if (variant.ceiling != CeilingKind::kNone) continue;
    figures.push_back(variant.figure);
    figures.back().work = {variant.piece.bytes * variant.pieces_per_call,
                           variant.piece.operations * variant.pieces_per_call};
  }
  return figures;
}

}  // namespace quire
