// Reading packed groups in the words of an instruction set: codes of a quad, scales of a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/packed_layout.h"
#include "kernels/simd_inline.h"

namespace quire {

// Calls body(0), …, body(n - 1) with the index as a compile-time constant.
template <int n, class Body>
KERNEL_INLINE void unrolled(Body body) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (body(std::integral_constant<int, i>{}), ...);
  }(std::make_integer_sequence<int, n>{});
}

// Moves bits of every byte from position `from` to position `to` and keeps those in `mask`.
template <class W, int from, int to, uint8_t mask>
KERNEL_INLINE typename W::Bytes move_bits(typename W::Bytes bytes) {
  if constexpr (to > from) bytes = W::shl_i32(bytes, to - from);
  if constexpr (to < from) bytes = W::shr_i32(bytes, from - to);
  return W::and_i32(bytes, W::set1_i32(static_cast<int32_t>(mask * 0x01010101u)));
}

// The codes of quad `quad` (inputs 4 quad … 4 quad + 3) of a group, as the products see them: unsigned, the
// zero point not yet subtracted.
template <class W, TensorType type, int quad>
KERNEL_INLINE typename W::Bytes load_quad(const std::byte* group) {
  constexpr int kBits = packed_layout(type).code_bits;
  constexpr int kHalf = quad / 4;
  constexpr int kInHalf = quad % 4;
  if constexpr (kBits == 8) {
    return W::load_i32(group + 64 * quad);
  } else if constexpr (kBits == 2) {
    return move_bits<W, 2 * kInHalf, 0, 3>(W::load_i32(group + 64 * kHalf));
  } else if constexpr (kBits == 3) {
    const auto low = move_bits<W, 2 * kInHalf, 0, 3>(W::load_i32(group + 64 * kHalf));
    return W::or_i32(low, move_bits<W, quad, 2, 4>(W::load_i32(group + 128)));
  } else {
    const auto nibbles = move_bits<W, 4 * kHalf, 0, 15>(W::load_i32(group + 64 * kInHalf));
    if constexpr (has_code_table(type)) {
      static constexpr auto kTable = code_table<type>();
      return W::lookup(kTable.data(), nibbles);
    } else if constexpr (kBits == 5) {
      return W::or_i32(nibbles, move_bits<W, quad, 4, 16>(W::load_i32(group + 256)));
    } else if constexpr (kBits == 6) {
      return W::or_i32(nibbles, move_bits<W, 2 * kInHalf, 4, 48>(W::load_i32(group + 256 + 64 * kHalf)));
    } else {
      return nibbles;
    }
  }
}

// The scales of a group's 16 rows.
template <class W>
struct GroupScales {
  typename W::F32 scale;      // of the group; where it has halves: what both multipliers multiply
  typename W::F32 min;        // likewise
  typename W::I32 pairs;      // halves only: i16 multipliers of (low, high)
  typename W::I32 min_pairs;  // likewise
};

template <class W>
KERNEL_INLINE typename W::F32 negative(typename W::F32 a) {
  return W::as_f32(W::add_i32(W::as_i32(a), W::set1_i32(INT32_MIN)));
}

// 2^(e - 128) for 0 <= e <= 255, subnormal results included: the product of two normal powers.
template <class W>
KERNEL_INLINE typename W::F32 load_exponents(const std::byte* from) {
  const auto e = W::load_u8(from);
  const auto first = W::shr_i32(e, 1);
  const auto second = W::sub_i32(e, first);
  const auto bias = W::set1_i32(127 - 64);
  return W::mul(W::as_f32(W::shl_i32(W::add_i32(first, bias), 23)),
                W::as_f32(W::shl_i32(W::add_i32(second, bias), 23)));
}

// Group `group` of the block whose header begins at `header`.
template <class W, TensorType type>
KERNEL_INLINE GroupScales<W> load_scales(const std::byte* header, int group) {
  constexpr ScaleKind kKind = packed_layout(type).scales;
  GroupScales<W> s{};
  if constexpr (kKind == ScaleKind::kExponent) {
    s.scale = load_exponents<W>(header);
  } else {
    s.scale = W::load_f16(header);
  }
  if constexpr (kKind == ScaleKind::kHalfMin) {
    s.min = W::load_f16(header + 32);
  } else if constexpr (kKind == ScaleKind::kSuper32Min) {
    s.scale = W::mul(s.scale, W::to_f32(W::load_u8(header + 64 + 16 * group)));
    s.min = W::mul(negative<W>(W::load_f16(header + 32)), W::to_f32(W::load_u8(header + 192 + 16 * group)));
  } else if constexpr (kKind == ScaleKind::kSuper16) {
    s.pairs = W::load_pairs_s8(header + 32 + 32 * group);
  } else if constexpr (kKind == ScaleKind::kSuper16NibbleMin) {
    const auto both = W::load_pairs_u8(header + 64 + 32 * group);
    const auto nibble = W::set1_i32(0x000f000f);
    s.min = negative<W>(W::load_f16(header + 32));
    s.pairs = W::and_i32(both, nibble);
    s.min_pairs = W::and_i32(W::shr_i32(both, 4), nibble);
  }
  return s;
}

}  // namespace quire
