// Products with int8 activations, once for all instruction sets.
//
// Few rows: the packed panel is streamed once and unpacked in registers. Many rows: a chunk of the panel is
// unpacked once into the thread's scratch (L1) and multiplied with all rows, some rows at a time in
// registers. Both compute each output with the same integers and the same order of float operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/matmul_codes.h"
#include "kernels/matmul_scratch.h"
#include "kernels/panel_outputs.h"

namespace quire {

// How the integer dot of one group is done; types that share it share the code of the tile.
struct DotShape {
  int steps = 8;        // quads that one W::Dot takes
  int planes = 1;       // 2: codes are split in nibbles
  bool halves = false;  // integer multipliers of sub-groups of 16
  bool has_min = false;
  int zero_shift = 0;  // halves only: zero point = 2^zero_shift

  static constexpr int kQuads = 8;
  [[nodiscard]] constexpr int runs() const { return planes * kQuads / steps; }
};

template <class W>
[[nodiscard]] constexpr DotShape dot_shape(TensorType type) {
  const PackedLayout layout = packed_layout(type);
  DotShape shape;
  shape.planes = W::dot_planes(layout.code_max);
  shape.steps = W::dot_steps(shape.planes == 2 ? 15 : layout.code_max);
  shape.halves = layout.has_halves();
  shape.has_min = layout.has_min();
  if (shape.halves && shape.steps > 4) shape.steps = 4;
  if (shape.halves) {
    while (1 << shape.zero_shift < layout.zero) ++shape.zero_shift;
  }
  return shape;
}

// A group's codes in the packed panel: unpacked on the way.
template <class W, TensorType type>
struct PackedCodes {
  const std::byte* group;

  template <int plane, int quad>
  KERNEL_INLINE typename W::Bytes load(PackedCodes source) {
    const auto codes = load_quad<W, type, quad>(source.group);
    if constexpr (dot_shape<W>(type).planes == 1) {
      return codes;
    } else {
      return move_bits<W, 4 * plane, 0, 15>(codes);
    }
  }
};

// A group's codes in the scratch: [plane][quad][16 rows][4].
template <class W>
struct UnpackedCodes {
  const std::byte* group;

  template <int plane, int quad>
  KERNEL_INLINE typename W::Bytes load(UnpackedCodes source) {
    return W::load_i32(source.group + 64 * (plane * DotShape::kQuads + quad));
  }
};

// One group of some rows of activations, side by side in one tile.
struct GroupRows {
  const int8_t* codes;    // [row][32]
  const float* scales;    // [row]
  const GroupSums* sums;  // [row]
  size_t stride;          // rows of the tile: from one group to the next

  KERNEL_INLINE GroupRows at(const QuantizedRows& x, int row, int group) {
    const GroupPlaces places = x.places(row);
    const size_t at = places[group];
    return {x.codes + at * kGroup, x.scales + at, x.sums + at, places.stride};
  }
  // These rows from row `row` on, `groups` further on.
  KERNEL_INLINE GroupRows from(const GroupRows& x, int row, size_t groups) {
    const size_t at = groups + static_cast<size_t>(row);
    return {x.codes + at * kGroup, x.scales + at, x.sums + at, x.stride};
  }
  void advance() {
    codes += stride * kGroup;
    scales += stride;
    sums += stride;
  }
};

// Whether any of kRows scales is not 0.
template <int kRows>
KERNEL_INLINE bool any_scale(const float* scales) {
  uint32_t bits[kRows];
  __builtin_memcpy(bits, scales, sizeof bits);
  uint32_t any = 0;
  for (uint32_t scale : bits) any |= scale;
  return any != 0;
}

// acc += one group: the definition in kernel_table.h. `zero`: the zero point in both i16 halves of a lane.
template <class W, DotShape shape, int kRows>
struct GroupProduct {
  using F32 = typename W::F32;
  using I32 = typename W::I32;
  using Scales = GroupScales<W>;

  // The first term of every row; then the second of those that have one, each alone: few have, and seldom
  // neighbours in the same group.
  template <class Codes>
  KERNEL_INLINE void add_terms(Codes codes, const Scales& s, I32 zero, const QuantizedRows& x,
                               const GroupRows& rows, F32* acc) {
    add(codes, s, zero, rows, acc);
    if (x.terms == 1) return;
    const auto second = GroupRows::from(rows, 0, x.term_groups());
    if (!any_scale<kRows>(second.scales)) return;
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
      if (second.scales[r] == 0.0f) return;
      GroupProduct<W, shape, 1>::add(codes, s, zero, GroupRows::from(second, r, 0), acc + r);
    });
  }

  template <class Codes>
  KERNEL_INLINE void add(Codes codes, const Scales& s, I32 zero, const GroupRows& x, F32* acc) {
    I32 total[kRows];
    dots(codes, s, x, total);
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
      const F32 a = W::set1(x.scales[r]);
      if constexpr (shape.halves) {
        const I32 sums = W::broadcast4(x.sums + r);
        if constexpr (shape.has_min) {
          const F32 dot = W::to_f32(total[r]);
          const F32 min = W::to_f32(W::pair_dot(s.min_pairs, sums));
          acc[r] = W::fma(dot, W::mul(s.scale, a), acc[r]);
          acc[r] = W::fma(min, W::mul(s.min, a), acc[r]);
        } else {
          const I32 excess = W::shl_i32(W::pair_dot(s.pairs, sums), shape.zero_shift);
          acc[r] = W::fma(W::to_f32(W::sub_i32(total[r], excess)), W::mul(s.scale, a), acc[r]);
        }
      } else if constexpr (shape.has_min) {
        acc[r] = W::fma(W::to_f32(total[r]), W::mul(s.scale, a), acc[r]);
        acc[r] = W::fma(s.min, W::set1(x.sums[r].scaled), acc[r]);
      } else {
        const I32 excess = W::pair_dot(zero, W::broadcast4(x.sums + r));
        acc[r] = W::fma(W::to_f32(W::sub_i32(total[r], excess)), W::mul(s.scale, a), acc[r]);
      }
    });
  }

 private:
  template <class Codes>
  KERNEL_INLINE void dots(Codes codes, const Scales& s, const GroupRows& x, I32* total) {
    unrolled<shape.runs()>([&](auto run) __attribute__((always_inline)) {
      constexpr int kPlane = run * shape.steps / DotShape::kQuads;
      constexpr int kFirstQuad = run * shape.steps % DotShape::kQuads;
      typename W::Dot dot[kRows];
      unrolled<shape.steps>([&](auto step) __attribute__((always_inline)) {
        const auto c = Codes::template load<kPlane, kFirstQuad + step>(codes);
        unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
          const auto a = W::broadcast4(x.codes + kGroup * r + 4 * (kFirstQuad + step));
          if constexpr (step == 0) {
            dot[r] = W::dot_start(c, a);
          } else {
            dot[r] = W::dot(dot[r], c, a);
          }
        });
      });
      unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
        const I32 part = empty<kPlane, kFirstQuad / 4>(dot[r], s);
        if constexpr (run == 0) {
          total[r] = part;
        } else {
          total[r] = W::add_i32(total[r], part);
        }
      });
    });
  }

  template <int plane, int half>
  KERNEL_INLINE I32 empty(typename W::Dot dot, const Scales& s) {
    if constexpr (shape.halves) {
      return W::dot_scaled(dot, half == 0 ? W::scale_low(s.pairs) : W::scale_high(s.pairs));
    } else if constexpr (plane == 1) {
      return W::dot_scaled(dot, W::scale_low(W::set1_i32(16)));
    } else {
      return W::dot_sum(dot);
    }
  }
};

// Some unpacked groups of a panel.
struct Chunk {
  const std::byte* data;
  int begin;  // first group
  int count;
};

// kRows rows of activations times a chunk. The accumulators of earlier chunks are taken from the outputs.
template <class W, DotShape shape, int kRows>
struct TileProduct {
  static constexpr int kCodeBytes = shape.planes * kUnpackedPlaneBytes;
  static constexpr int kGroupBytes = kCodeBytes + kUnpackedScaleBytes;

  static void multiply(const Chunk& chunk, typename W::I32 zero, const QuantizedRows& x, int row,
                       const PanelOutputs<W>& out) {
    typename W::F32 acc[kRows];
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
      acc[r] = chunk.begin == 0 ? W::zero() : PanelOutputs<W>::load(out, row + r);
    });
    auto rows = GroupRows::at(x, row, chunk.begin);
    const std::byte* group = chunk.data;
    for (int g = 0; g < chunk.count; ++g, group += kGroupBytes, rows.advance()) {
      GroupProduct<W, shape, kRows>::add_terms(UnpackedCodes<W>{group}, load_scales(group + kCodeBytes), zero,
                                               x, rows, acc);
    }
    unrolled<kRows>([&](auto r)
                        __attribute__((always_inline)) { PanelOutputs<W>::store(out, row + r, acc[r]); });
  }

  KERNEL_INLINE GroupScales<W> load_scales(const std::byte* from) {
    GroupScales<W> s{};
    s.scale = W::load(reinterpret_cast<const float*>(from));
    if constexpr (shape.has_min) s.min = W::load(reinterpret_cast<const float*>(from + 64));
    if constexpr (shape.halves) s.pairs = W::load_i32(from + 128);
    if constexpr (shape.halves && shape.has_min) s.min_pairs = W::load_i32(from + 192);
    return s;
  }
  KERNEL_INLINE void store_scales(const GroupScales<W>& s, std::byte* to) {
    W::store(reinterpret_cast<float*>(to), s.scale);
    if constexpr (shape.has_min) W::store(reinterpret_cast<float*>(to + 64), s.min);
    if constexpr (shape.halves) W::store_i32(to + 128, s.pairs);
    if constexpr (shape.halves && shape.has_min) W::store_i32(to + 192, s.min_pairs);
  }
};

// The products of one type of weights.
template <class W, TensorType type>
class IntProduct {
 public:
  static void run(const PackedMatrix& w, const QuantizedRows& x, int panel_begin, int panel_end,
                  ProductRows y, std::byte* scratch) {
    if (x.rows > kStreamedRowsMax) {
      const int block = row_block(x.rows, static_cast<size_t>(x.in), W::kIntRows);
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
      Rows left = multiply_tiles<W::kIntRows>(chunk, x, rows, out);
      if constexpr (W::kIntRows > 4) left = multiply_tiles<4>(chunk, x, left, out);
      left = multiply_tiles<2>(chunk, x, left, out);
      multiply_tiles<1>(chunk, x, left, out);
    }
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
    using Tile = TileProduct<W, kShape, 1>;
    for (int g = begin; g < begin + count; ++g, scratch += Tile::kGroupBytes) {
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
      Tile::store_scales(load_scales<W, type>(block, in_block), scratch + Tile::kCodeBytes);
    }
  }
};

}  // namespace quire
