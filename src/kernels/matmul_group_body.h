// One group of 32 inputs of a product with int8 activations, once for all instruction sets: 16 outputs times
// some rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/matmul_codes.h"
#include "kernels/matmul_scratch.h"

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
    add_second_terms(codes, s, zero, x, rows, acc);
  }

  template <class Codes>
  KERNEL_INLINE void add_second_terms(Codes codes, const Scales& s, I32 zero, const QuantizedRows& x,
                                      const GroupRows& rows, F32* acc) {
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
      acc[r] = scaled(total[r], s, zero, x.scales[r], x.sums[r], acc[r]);
    });
  }

  // acc and one row's integer dot of the group.
  KERNEL_INLINE F32 scaled(I32 total, const Scales& s, I32 zero, const float& scale, const GroupSums& sums,
                           F32 acc) {
    const F32 a = W::set1(scale);
    if constexpr (shape.halves && shape.has_min) {
      const F32 min = W::to_f32(W::pair_dot(s.min_pairs, W::broadcast4(&sums)));
      acc = W::fma(W::to_f32(total), W::mul(s.scale, a), acc);
      return W::fma(min, W::mul(s.min, a), acc);
    } else if constexpr (shape.halves) {
      const I32 excess = W::shl_i32(W::pair_dot(s.pairs, W::broadcast4(&sums)), shape.zero_shift);
      return W::fma(W::to_f32(W::sub_i32(total, excess)), W::mul(s.scale, a), acc);
    } else if constexpr (shape.has_min) {
      acc = W::fma(W::to_f32(total), W::mul(s.scale, a), acc);
      return W::fma(s.min, W::set1(sums.scaled), acc);
    } else {
      const I32 excess = W::pair_dot(zero, W::broadcast4(&sums));
      return W::fma(W::to_f32(W::sub_i32(total, excess)), W::mul(s.scale, a), acc);
    }
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

// One unpacked group of a panel: codes (see UnpackedCodes), then scales.
template <class W, DotShape shape>
struct UnpackedGroup {
  static constexpr int kCodeBytes = shape.planes * kUnpackedPlaneBytes;
  static constexpr int kBytes = kCodeBytes + kUnpackedScaleBytes;

  KERNEL_INLINE GroupScales<W> load_scales(const std::byte* group) {
    const std::byte* from = group + kCodeBytes;
    GroupScales<W> s{};
    s.scale = W::load(reinterpret_cast<const float*>(from));
    if constexpr (shape.has_min) s.min = W::load(reinterpret_cast<const float*>(from + 64));
    if constexpr (shape.halves) s.pairs = W::load_i32(from + 128);
    if constexpr (shape.halves && shape.has_min) s.min_pairs = W::load_i32(from + 192);
    return s;
  }
  KERNEL_INLINE void store_scales(const GroupScales<W>& s, std::byte* group) {
    std::byte* to = group + kCodeBytes;
    W::store(reinterpret_cast<float*>(to), s.scale);
    if constexpr (shape.has_min) W::store(reinterpret_cast<float*>(to + 64), s.min);
    if constexpr (shape.halves) W::store_i32(to + 128, s.pairs);
    if constexpr (shape.halves && shape.has_min) W::store_i32(to + 192, s.min_pairs);
  }
};

// Some unpacked groups of a panel.
struct Chunk {
  const std::byte* data;
  int begin;  // first group
  int count;
};

}  // namespace quire
