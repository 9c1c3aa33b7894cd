#include "model/product.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// Floats of one tile of outputs: 256 KiB.
constexpr int kTileFloats = 64 * 1024;
constexpr int kTilePanelsMin = 4;

size_t product_bytes(const Product& product) {
  const PackedMatrix& matrix = product.projection->matrix;
  return static_cast<size_t>(matrix.panels()) * matrix.panel_bytes;
}

// How many outputs the panels of `range` really have: the last panel of a matrix may be partly padding.
int outputs_in(const PackedMatrix& matrix, PanelRange range) {
  return std::min(matrix.out, range.end * kPanelRows) - range.begin * kPanelRows;
}

}  // namespace

PanelRange panel_share(std::span<const Product> products, int index, const ProductShare& share) {
  size_t total = 0;
  size_t before = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    if (i == static_cast<size_t>(index)) before = total;
    total += product_bytes(products[i]);
  }
  const PackedMatrix& matrix = products[index].projection->matrix;
  // Both ends by the same rounding, so that neighbours meet without a gap.
  auto panel_at = [&](int member) {
    size_t cut = total / static_cast<size_t>(share.threads) * static_cast<size_t>(member);
    if (member == share.threads) cut = total;
    if (cut <= before) return 0;
    return static_cast<int>(
        std::min<size_t>((cut - before) / matrix.panel_bytes, static_cast<size_t>(matrix.panels())));
  };
  return {panel_at(share.thread), panel_at(share.thread + 1)};
}

int panel_tile(int rows) {
  return std::max(kTilePanelsMin, kTileFloats / (kPanelRows * std::max(rows, 1)));
}

void multiply(const KernelTable& kernels, const Product& product, const ActivationRows& x, PanelRange range,
              std::byte* kernel_scratch) {
  if (range.begin >= range.end) return;
  const PackedMatrix& matrix = product.projection->matrix;
  if (product.form == ActivationForm::kFloat) {
    CHECK(matrix.in == x.floats.in);
    kernels.matmul_float(matrix, x.floats, range.begin, range.end, product.y, kernel_scratch);
  } else if (product.form == ActivationForm::kWide) {
    CHECK(matrix.in == x.wide.in);
    kernels.matmul_wide(matrix, x.wide, range.begin, range.end, product.y);
  } else {
    CHECK(matrix.in == x.codes.in);
    QuantizedRows rows = x.codes;
    rows.terms = product.form == ActivationForm::kInt8 ? 1 : 2;
    kernels.matmul(matrix, rows, range.begin, range.end, product.y, kernel_scratch);
  }
  if (product.projection->bias == nullptr) return;
  int output = range.begin * kPanelRows;
  for (int row = 0; row < x.floats.rows; ++row) {
    kernels.add(product.projection->bias + output, outputs_in(matrix, range),
                product.y.values + static_cast<size_t>(row) * product.y.stride + output);
  }
}

int64_t panels_in_share(std::span<const Product> products, const ProductShare& share) {
  int64_t count = 0;
  for (int index = 0; index < static_cast<int>(products.size()); ++index) {
    const PanelRange range = panel_share(products, index, share);
    count += range.end - range.begin;
  }
  return count;
}

void multiply_piece(const KernelTable& kernels, std::span<const Product> products, const ActivationRows& x,
                    Share piece, const ProductShare& share, std::byte* kernel_scratch) {
  int64_t before = 0;
  for (int index = 0; index < static_cast<int>(products.size()); ++index) {
    const PanelRange range = panel_share(products, index, share);
    const int64_t count = range.end - range.begin;
    const auto begin = static_cast<int>(std::clamp<int64_t>(piece.begin - before, 0, count));
    const auto end = static_cast<int>(std::clamp<int64_t>(piece.end - before, 0, count));
    multiply(kernels, products[index], x, {range.begin + begin, range.begin + end}, kernel_scratch);
    before += count;
  }
}

}  // namespace quire
