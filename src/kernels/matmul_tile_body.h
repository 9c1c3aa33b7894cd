// Products of 16 rows of int8 activations with tile registers (AMX): the integer dots of a group are one
// instruction, and their scaling is what takes time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul_group_body.h"
#include "kernels/panel_outputs.h"

namespace quire {

// The tile registers of a machine that has none.
struct NoTiles {
  static constexpr int kRows = 0;
  // While one lives, this thread's tile registers have their shapes.
  struct Use {};
};

// Tiles::kRows rows of activations times a chunk. The dots of a group are under way while those of the group
// before are scaled; the integers, the float operations and their order are those of GroupProduct.
template <class W, DotShape shape, class Tiles>
class RegisterTileProduct {
 public:
  static void multiply(const Chunk& chunk, typename W::I32 zero, const QuantizedRows& x, int row,
                       const PanelOutputs<W>& out) {
    // What one group stores never lies at the page offset of what is read of the other: reads would wait.
    alignas(4096) int32_t dots[2][kRows][kPanelRows];
    F32 acc[kRows];
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
      acc[r] = chunk.begin == 0 ? W::zero() : PanelOutputs<W>::load(out, row + r);
    });
    auto rows = GroupRows::at(x, row, chunk.begin);
    const std::byte* group = chunk.data;
    Tiles::dots(rows.codes, group, dots[0][0]);
    for (int g = 0; g < chunk.count; ++g, group += Group::kBytes) {
      auto next = rows;
      next.advance();
      if (g + 1 < chunk.count) Tiles::dots(next.codes, group + Group::kBytes, dots[(g + 1) % 2][0]);
      const auto scales = Group::load_scales(group);
      unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
        acc[r] =
            Product::scaled(W::load_i32(dots[g % 2][r]), scales, zero, rows.scales[r], rows.sums[r], acc[r]);
      });
      Product::add_second_terms(UnpackedCodes<W>{group}, scales, zero, x, rows, acc);
      rows = next;
    }
    unrolled<kRows>([&](auto r)
                        __attribute__((always_inline)) { PanelOutputs<W>::store(out, row + r, acc[r]); });
  }

 private:
  static constexpr int kRows = Tiles::kRows;
  static_assert(shape.planes == 1 && !shape.halves);
  using F32 = typename W::F32;
  using Group = UnpackedGroup<W, shape>;
  using Product = GroupProduct<W, shape, kRows>;
};

}  // namespace quire
