// Where a panel's outputs go, and how its bytes are fetched ahead.
#pragma once

#include <cstddef>

#include "kernels/kernel_table.h"
#include "kernels/matmul_codes.h"
#include "kernels/matmul_scratch.h"

namespace quire {

// Where a panel's outputs go; `lanes` of its 16 exist.
template <class W>
struct PanelOutputs {
  float* values;
  size_t stride;
  int lanes;

  KERNEL_INLINE PanelOutputs of(const PackedMatrix& w, int panel, ProductRows y) {
    const int left = w.out - panel * kPanelRows;
    return {y.values + panel * kPanelRows, y.stride, left < kPanelRows ? left : kPanelRows};
  }
  KERNEL_INLINE typename W::F32 load(const PanelOutputs& out, int row) {
    const float* from = out.values + static_cast<size_t>(row) * out.stride;
    return out.lanes == kPanelRows ? W::load(from) : W::load_first(from, out.lanes);
  }
  KERNEL_INLINE void store(const PanelOutputs& out, int row, typename W::F32 value) {
    float* to = out.values + static_cast<size_t>(row) * out.stride;
    if (out.lanes == kPanelRows) {
      W::store(to, value);
    } else {
      W::store_first(to, value, out.lanes);
    }
  }
};

// Weights come from memory and are read once; the next panel lies behind this one.
template <class W, int bytes>
KERNEL_INLINE void prefetch_panel(const std::byte* from) {
  unrolled<(bytes + 63) / 64>(
      [&](auto line) __attribute__((always_inline)) { W::prefetch(from + kPrefetchBytes + 64 * line); });
}

}  // namespace quire
