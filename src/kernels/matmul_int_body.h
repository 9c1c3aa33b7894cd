// Products with int8 activations, once for all instruction sets.
//
// Few rows: the packed panel is streamed once and unpacked in registers. Many rows: a chunk of the panel is
// unpacked once into the thread's scratch (L1) and multiplied with all rows, some rows at a time in
// registers. Both compute each output with the same integers and the same order of float operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/matmul_group_body.h"
#include "kernels/matmul_scratch.h"
#include "kernels/matmul_tile_body.h"
#include "kernels/panel_outputs.h"

namespace quire {

// kRows rows of activations times a chunk. The accumulators of earlier chunks are taken from the outputs.
template <class W, DotShape shape, int kRows>
struct TileProduct {
  using Group = UnpackedGroup<W, shape>;

  static void multiply(const Chunk& chunk, typename W::I32 zero, const QuantizedRows& x, int row,
                       const PanelOutputs<W>& out) {
    typename W::F32 acc[kRows];
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
      acc[r] = chunk.begin == 0 ? W::zero() : PanelOutputs<W>::load(out, row + r);
    });
    auto rows = GroupRows::at(x, row, chunk.begin);
    const std::byte* group = chunk.data;
    for (int g = 0; g < chunk.count; ++g, group += Group::kBytes, rows.advance()) {
      GroupProduct<W, shape, kRows>::add_terms(UnpackedCodes<W>{group}, Group::load_scales(group), zero, x,
                                               rows, acc);
    }
    unrolled<kRows>([&](auto r)
                        __attribute__((always_inline)) { PanelOutputs<W>::store(out, row + r, acc[r]); });
  }
};

// The products of one type of weights.
// Tiles: its tile registers, or NoTiles.
template <class W, TensorType type, class Tiles>
class IntProduct {
 public:
  static void run(const PackedMatrix& w, const QuantizedRows& x, int panel_begin, int panel_end,
                  ProductRows y, std::byte* scratch) {
    if (x.rows > kStreamedRowsMax) {
      const int block = row_block(x.rows, static_cast<size_t>(x.in), kTileRows > 0 ? kTileRows : W::kIntRows);
      [[maybe_unused]] const typename Tiles::Use tiles{};
      for (int row = 0; row < x.rows; row += block) {
        const Rows rows{row, x.rows - row < block ? x.rows : row + block};
        for (int panel = panel_begin; panel < panel_end; ++panel)
          multiply_chunks(panel_data(w, panel), x, rows, PanelOutputs<W>::of(w, panel, y), scratch);
      }
      return;
    }
    for (int panel = panel_begin; panel < panel_end; ++panel)
      stream_panel(panel_data(w, panel), x, PanelOutputs<W>::of(w, panel, y));
  }

 private:
  using F32 = typename W::F32;
  static constexpr PackedLayout kLayout = packed_layout(type);
  static constexpr DotShape kShape = dot_shape<W>(type);
  static constexpr int kStreamedRowsMax = 4;
  // Sub-groups of 16 inputs have dots of their own, which would leave half of a tile unused.
  static constexpr int kTileRows = kShape.halves ? 0 : Tiles::kRows;

  struct Rows {
    int begin;
    int end;
  };

  KERNEL_INLINE typename W::I32 zero_pairs() { return W::set1_i32(kLayout.zero * 0x10001); }
  KERNEL_INLINE const std::byte* panel_data(const PackedMatrix& w, int panel) {
    return w.data + static_cast<size_t>(panel) * w.panel_bytes;
  }

  static void stream_panel(const std::byte* data, const QuantizedRows& x, const PanelOutputs<W>& out) {
    switch (x.rows) {
      case 1:
        return stream<1>(data, x, out);
      case 2:
        return stream<2>(data, x, out);
      case 3:
        return stream<3>(data, x, out);
      default:
        return stream<kStreamedRowsMax>(data, x, out);
    }
  }

  // All inputs of the panel times kRows rows.
  template <int kRows>
  static void stream(const std::byte* block, const QuantizedRows& x, const PanelOutputs<W>& out) {
    F32 acc[kRows];
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) { acc[r] = W::zero(); });
    auto rows = GroupRows::at(x, 0, 0);
    const int blocks = x.in / (kGroup * kLayout.block_groups);
    for (int b = 0; b < blocks; ++b, block += kLayout.block_bytes()) {
      prefetch_panel<W, kLayout.header_bytes>(block);
      for (int g = 0; g < kLayout.block_groups; ++g, rows.advance()) {
        const std::byte* group = block + kLayout.header_bytes + g * kLayout.group_bytes;
        prefetch_panel<W, kLayout.group_bytes>(group);
        GroupProduct<W, kShape, kRows>::add_terms(PackedCodes<W, type>{group}, load_scales<W, type>(block, g),
                                                  zero_pairs(), x, rows, acc);
      }
    }
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) { PanelOutputs<W>::store(out, r, acc[r]); });
  }

  static void multiply_chunks(const std::byte* data, const QuantizedRows& x, Rows rows,
                              const PanelOutputs<W>& out, std::byte* scratch) {
    const int groups = x.in / kGroup;
    for (int begin = 0; begin < groups; begin += kChunkGroups) {
      const int count = groups - begin < kChunkGroups ? groups - begin : kChunkGroups;
      unpack(data, begin, count, scratch);
      const Chunk chunk{scratch, begin, count};
      Rows left = rows;
      if constexpr (kTileRows > 0) left = multiply_register_tiles(chunk, x, left, out);
      left = multiply_tiles<W::kIntRows>(chunk, x, left, out);
      if constexpr (W::kIntRows > 4) left = multiply_tiles<4>(chunk, x, left, out);
      left = multiply_tiles<2>(chunk, x, left, out);
      multiply_tiles<1>(chunk, x, left, out);
    }
  }

  KERNEL_INLINE Rows multiply_register_tiles(const Chunk& chunk, const QuantizedRows& x, Rows rows,
                                             const PanelOutputs<W>& out) {
    static_assert(kActivationTileRows % kTileRows == 0);
    for (; rows.begin + kTileRows <= rows.end; rows.begin += kTileRows)
      RegisterTileProduct<W, kShape, Tiles>::multiply(chunk, zero_pairs(), x, rows.begin, out);
    return rows;
  }

  // kRows at a time as long as there are so many; returns the rows that are left. A single last row would
  // make poor use of the registers: four rows are rather 2 + 2 than 3 + 1, unless a tile ends after 3.
  template <int kRows>
  KERNEL_INLINE Rows multiply_tiles(const Chunk& chunk, const QuantizedRows& x, Rows rows,
                                    const PanelOutputs<W>& out) {
    for (; rows.begin + kRows <= rows.end; rows.begin += kRows) {
      if (kRows == 3 && rows.end - rows.begin == 4 && rows.end % kActivationTileRows != 1) break;
      TileProduct<W, kShape, kRows>::multiply(chunk, zero_pairs(), x, rows.begin, out);
    }
    return rows;
  }

  static void unpack(const std::byte* data, int begin, int count, std::byte* scratch) {
    using Unpacked = UnpackedGroup<W, kShape>;
    for (int g = begin; g < begin + count; ++g, scratch += Unpacked::kBytes) {
      const std::byte* block = data + static_cast<size_t>(g / kLayout.block_groups) * kLayout.block_bytes();
      const int in_block = g % kLayout.block_groups;
      const std::byte* group = block + kLayout.header_bytes + in_block * kLayout.group_bytes;
      if (in_block == 0) prefetch_panel<W, kLayout.header_bytes>(block);
      prefetch_panel<W, kLayout.group_bytes>(group);
      unrolled<kShape.planes * DotShape::kQuads>([&](auto i) __attribute__((always_inline)) {
        constexpr int kPlane = i / DotShape::kQuads;
        constexpr int kQuad = i % DotShape::kQuads;
        using Codes = PackedCodes<W, type>;
        W::store_i32(scratch + 64 * i, Codes::template load<kPlane, kQuad>(Codes{group}));
      });
      Unpacked::store_scales(load_scales<W, type>(block, in_block), scratch);
    }
  }
};

}  // namespace quire
