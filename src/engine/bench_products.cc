// Matrix products over random weights, and the kernels that prepare their rows.
#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "engine/bench_variants.h"
#include "model/product.h"

namespace quire {
namespace {

constexpr int kMatrixPanels = kBenchOutputs / kPanelRows;
// Of a thread's rows: within the L2 cache of any processor that has AVX2.
constexpr size_t kRowSetBytes = size_t{128} << 10;

template <class T>
class AlignedArray {
 public:
  explicit AlignedArray(size_t count) : memory_(count * sizeof(T) + 64) {}
  [[nodiscard]] T* data() const {
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory_.data()) + 63) & ~uintptr_t{63});
  }

 private:
  mutable std::vector<std::byte> memory_;
};

// The same random rows in every form, with room for their products.
class ProductRowSet {
 public:
  ProductRowSet(int rows, int in, int threads)
      : in_(in),
        values_(random_floats(static_cast<size_t>(rows) * static_cast<size_t>(in), 1)),
        codes_(values_.size()),
        wide_codes_(values_.size()),
        scales_(values_.size() / kGroup),
        wide_scales_(values_.size() / kGroup),
        sums_(values_.size() / kGroup),
        wide_sums_(values_.size() / kGroup),
        outputs_(static_cast<size_t>(rows) * kBenchOutputs),
        scratch_stride_(round_up<size_t>(matmul_scratch_bytes(in), 64)),
        scratch_(static_cast<size_t>(threads) * scratch_stride_) {
    const KernelTable& kernels = *find_kernels("");
    for (int row = 0; row < rows; ++row) {
      const float* x = values_.data() + static_cast<size_t>(row) * static_cast<size_t>(in);
      kernels.quantize_row(x, row, codes(rows));
      kernels.quantize_row_wide(x, row, wide(rows));
    }
  }

  [[nodiscard]] QuantizedRows codes(int rows) {
    return {.rows = rows, .in = in_, .codes = codes_.data(), .scales = scales_.data(), .sums = sums_.data()};
  }
  [[nodiscard]] WideRows wide(int rows) {
    return {rows, in_, wide_codes_.data(), wide_scales_.data(), wide_sums_.data()};
  }
  [[nodiscard]] FloatRows floats(int rows) const {
    return {rows, in_, static_cast<size_t>(in_), values_.data()};
  }
  [[nodiscard]] ProductRows outputs() const { return {outputs_.data(), kBenchOutputs}; }
  [[nodiscard]] std::byte* scratch(int member) const {
    return scratch_.data() + static_cast<size_t>(member) * scratch_stride_;
  }

 private:
  const int in_;
  std::vector<float> values_;
  AlignedArray<int8_t> codes_;
  AlignedArray<int16_t> wide_codes_;
  AlignedArray<float> scales_, wide_scales_;
  AlignedArray<GroupSums> sums_;
  AlignedArray<WideSums> wide_sums_;
  AlignedArray<float> outputs_;
  const size_t scratch_stride_;
  AlignedArray<std::byte> scratch_;
};

// One product: which kernel over which weights.
struct ProductCase {
  BenchKernel kernel = BenchKernel::kMatmul;
  const KernelTable* kernels = nullptr;
  PackedMatrix matrix;  // without data
  int rows = 1;
  int threads = 1;
};

void multiply_panels(const ProductCase& product, const PackedMatrix& matrix, PanelRange panels,
                     ProductRowSet& set, int member) {
  const KernelTable& kernels = *product.kernels;
  switch (product.kernel) {
    case BenchKernel::kMatmul:
      return kernels.matmul(matrix, set.codes(product.rows), panels.begin, panels.end, set.outputs(),
                            set.scratch(member));
    case BenchKernel::kMatmulWide:
      return kernels.matmul_wide(matrix, set.wide(product.rows), panels.begin, panels.end, set.outputs());
    default:
      return kernels.matmul_float(matrix, set.floats(product.rows), panels.begin, panels.end, set.outputs(),
                                  set.scratch(member));
  }
}

// A piece is one panel of each member. A member has the same panels of every matrix, so that no two write the
// same outputs.
BenchVariant product_variant(const ProductCase& product, const std::shared_ptr<WeightMemory>& memory,
                             const std::shared_ptr<ProductRowSet>& set) {
  const PackedMatrix& matrix = product.matrix;
  const double panel_values = static_cast<double>(matrix.in) * kPanelRows;
  BenchVariant variant;
  variant.figure = {.kernel = product.kernel,
                    .type = std::string(tensor_type_info(matrix.type).name),
                    .rows = product.rows,
                    .isa = std::string(product.kernels->name),
                    .threads = product.threads,
                    .bytes_bound = CeilingKind::kMemoryRead,
                    .operations_bound = product.kernel == BenchKernel::kMatmul ? CeilingKind::kInt8Dot
                                        : product.kernel == BenchKernel::kMatmulWide
                                            ? CeilingKind::kInt16Dot
                                            : CeilingKind::kFloatFma};
  variant.piece = {static_cast<double>(matrix.panel_bytes) * product.threads,
                   2 * panel_values * product.rows * product.threads};
  variant.pieces_per_call = static_cast<double>(kMatrixPanels) / product.threads;
  variant.run = [product, memory, set](ThreadPool& team, int64_t count) {
    const int64_t share = kMatrixPanels / product.threads;
    const WeightMemory::Slots slots =
        memory->take(kMatrixPanels * product.matrix.panel_bytes, ceil_div(count, share));
    team.run([&](int member) {
      PackedMatrix matrix = product.matrix;
      const int first = static_cast<int>(share) * member;
      for (int64_t done = 0; done < count;) {
        matrix.data = slots.at(done / share);
        const auto begin = static_cast<int>(done % share);
        const auto end = static_cast<int>(
            std::min({begin + count - done, share, int64_t{begin} + panel_tile(product.rows)}));
        multiply_panels(product, matrix, {first + begin, first + end}, *set, member);
        done += end - begin;
      }
    });
  };
  return variant;
}

// A thread's rows, and what becomes of them.
struct RowSet {
  explicit RowSet(int in)
      : rows(std::max(1, static_cast<int>(kRowSetBytes / sizeof(float) / static_cast<size_t>(in)))),
        x(random_floats(static_cast<size_t>(rows) * static_cast<size_t>(in), 2)),
        weights(random_floats(static_cast<size_t>(in), 3)),
        y(x.size()),
        codes(2 * x.size()),
        scales(x.size() / kGroup),
        sums(x.size() / kGroup * sizeof(WideSums)) {}

  int rows;
  std::vector<float> x, weights, y;
  AlignedArray<std::byte> codes;
  AlignedArray<float> scales;
  AlignedArray<std::byte> sums;
};

void prepare_row(BenchKernel kernel, const KernelTable& kernels, int in, RowSet& set, int row) {
  const size_t at = static_cast<size_t>(row) * static_cast<size_t>(in);
  const float* x = set.x.data() + at;
  if (kernel == BenchKernel::kQuantize) {
    kernels.quantize_row(x, row,
                         {.rows = set.rows,
                          .in = in,
                          .codes = reinterpret_cast<int8_t*>(set.codes.data()),
                          .scales = set.scales.data(),
                          .sums = reinterpret_cast<GroupSums*>(set.sums.data())});
  } else if (kernel == BenchKernel::kQuantizeWide) {
    kernels.quantize_row_wide(x, row,
                              {.rows = set.rows,
                               .in = in,
                               .codes = reinterpret_cast<int16_t*>(set.codes.data()),
                               .scales = set.scales.data(),
                               .sums = reinterpret_cast<WideSums*>(set.sums.data())});
  } else {
    kernels.rms_norm(x, set.weights.data(), 1e-5f, in, set.y.data() + at);
  }
}

// Bytes of a row that are read and written.
double row_bytes(BenchKernel kernel, int in) {
  const double groups = static_cast<double>(in) / kGroup;
  const double read = static_cast<double>(in) * sizeof(float);
  if (kernel == BenchKernel::kQuantize) return read + in + groups * (sizeof(float) + sizeof(GroupSums));
  if (kernel == BenchKernel::kQuantizeWide)
    return read + 2 * in + groups * (sizeof(float) + sizeof(WideSums));
  return 2 * read;
}

using RowSets = std::vector<std::unique_ptr<RowSet>>;

// A piece is one row of each member.
BenchVariant row_variant(BenchKernel kernel, const KernelTable& kernels, const KernelBenchOptions& options,
                         int threads, const std::shared_ptr<RowSets>& sets) {
  BenchVariant variant;
  variant.figure = {.kernel = kernel,
                    .isa = std::string(kernels.name),
                    .threads = threads,
                    .bytes_bound = CeilingKind::kCacheRead};
  variant.piece = {.bytes = row_bytes(kernel, options.in) * threads};
  variant.pieces_per_call = 1.0 / threads;
  variant.run = [kernel, &kernels, in = options.in, sets](ThreadPool& team, int64_t count) {
    team.run([&](int member) {
      RowSet& set = *(*sets)[static_cast<size_t>(member)];
      for (int64_t i = 0; i < count; ++i)
        prepare_row(kernel, kernels, in, set, static_cast<int>(i % set.rows));
    });
  };
  return variant;
}

bool is_product(BenchKernel kernel) {
  return kernel == BenchKernel::kMatmul || kernel == BenchKernel::kMatmulWide ||
         kernel == BenchKernel::kMatmulFloat;
}

bool is_row_kernel(BenchKernel kernel) {
  return kernel == BenchKernel::kQuantize || kernel == BenchKernel::kQuantizeWide ||
         kernel == BenchKernel::kRmsNorm;
}

// A word of random bits (Marsaglia's xorshift64).
uint64_t next_random(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

}  // namespace

std::vector<float> random_floats(size_t count, uint64_t seed) {
  std::vector<float> values(count);
  uint64_t state = 0x9e3779b97f4a7c15 * (seed + 1);
  for (float& value : values)
    value = static_cast<float>(static_cast<int32_t>(next_random(state) >> 32)) * 0x1p-31f;
  return values;
}

int most_threads(const KernelBenchOptions& options) {
  return *std::ranges::max_element(options.threads);
}

Result<std::shared_ptr<WeightMemory>> WeightMemory::make(size_t bytes, ThreadPool& team) {
  PageArena arena =
      TRY(PageArena::reserve(round_up<size_t>(bytes, 64), PageAdvice::kHuge, "weights to measure with"));
  std::shared_ptr<WeightMemory> memory(new WeightMemory(std::move(arena)));
  auto* words = reinterpret_cast<uint64_t*>(memory->arena_.data());
  team.run([&](int member) {
    const Share share =
        share_of(static_cast<int64_t>(memory->size() / sizeof(uint64_t)), member, team.size());
    uint64_t state = 0x9e3779b97f4a7c15 * (static_cast<uint64_t>(member) + 1);
    // Odd bytes 0x28 … 0x3b or their negatives: as float16, bfloat16 or float32, numbers of middling size.
    // Even bytes 0x40 … 0x7f: as powers of two likewise.
    for (int64_t i = share.begin; i < share.end; ++i) {
      words[i] = (next_random(state) & 0x933f933f933f933f) | 0x2840284028402840;
    }
  });
  return memory;
}

WeightMemory::Slots WeightMemory::take(size_t slot_bytes, int64_t count) {
  CHECK(slot_bytes <= size());
  const auto total = static_cast<int64_t>(size() / slot_bytes);
  const auto first = static_cast<int64_t>(ceil_div(read_until_, slot_bytes)) % total;
  read_until_ = static_cast<size_t>((first + count - 1) % total + 1) * slot_bytes;
  return {data(), slot_bytes, first, total};
}

void add_products(const KernelBenchOptions& options, const std::shared_ptr<WeightMemory>& memory,
                  std::vector<BenchVariant>& variants) {
  if (std::ranges::none_of(options.kernels, is_product)) return;
  const int rows_max = *std::ranges::max_element(options.rows);
  const auto set = std::make_shared<ProductRowSet>(rows_max, options.in, most_threads(options));
  for (BenchKernel kernel : options.kernels) {
    if (!is_product(kernel)) continue;
    for (TensorType type : options.types) {
      if (kernel != BenchKernel::kMatmulFloat && !has_codes(type)) continue;
      const PackedMatrix matrix{type, kBenchOutputs, options.in, nullptr,
                                packed_panel_bytes(type, options.in)};
      for (int rows : options.rows) {
        for (const std::string& isa : options.isas) {
          for (int threads : options.threads) {
            variants.push_back(
                product_variant({kernel, find_kernels(isa), matrix, rows, threads}, memory, set));
          }
        }
      }
    }
  }
}

void add_row_kernels(const KernelBenchOptions& options, std::vector<BenchVariant>& variants) {
  const auto sets = std::make_shared<RowSets>();
  for (int member = 0; member < most_threads(options); ++member)
    sets->push_back(std::make_unique<RowSet>(options.in));
  for (BenchKernel kernel : options.kernels) {
    if (!is_row_kernel(kernel)) continue;
    for (const std::string& isa : options.isas) {
      for (int threads : options.threads)
        variants.push_back(row_variant(kernel, *find_kernels(isa), options, threads, sets));
    }
  }
}

}  // namespace quire
