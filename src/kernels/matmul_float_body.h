// Products with float32 activations, once for all instruction sets: a chunk of a panel is dequantised into
// the thread's scratch and multiplied with all rows, k ascending in one chain of fused multiply-adds per
// output.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/matmul_codes.h"
#include "kernels/matmul_int_body.h"
#include "kernels/matmul_scratch.h"

namespace quire {

// Float weights as they lie in the panel, [input][16 rows]: read once from memory.
template <class W, TensorType type>
struct StreamedFloats {
  static constexpr int kInputBytes = type == TensorType::kF32 ? 64 : 32;
  const std::byte* data;

  KERNEL_INLINE StreamedFloats at(const std::byte* panel, int begin) {
    return {panel + static_cast<size_t>(begin) * kInputBytes};
  }
  KERNEL_INLINE typename W::F32 load(StreamedFloats source, int k) {
    const std::byte* from = source.data + static_cast<ptrdiff_t>(k) * kInputBytes;
    W::prefetch(from + kPrefetchBytes);
    if constexpr (type == TensorType::kF16) {
      return W::load_f16(from);
    } else if constexpr (type == TensorType::kBF16) {
      return W::load_bf16(from);
    } else {
      return W::load(reinterpret_cast<const float*>(from));
    }
  }
};

// Weights [input][16 rows] in the cache.
template <class W>
struct CachedFloats {
  const float* data;

  KERNEL_INLINE typename W::F32 load(CachedFloats source, int k) {
    return W::load(source.data + 16 * static_cast<ptrdiff_t>(k));
  }
};

// Dequantises inputs [begin, begin + count) of a panel to `to` [input][16 rows]; both multiples of 32 for
// types with codes. The bits are those of dequantize_row.
template <class W, TensorType type>
struct PanelFloats {
  using F32 = typename W::F32;
  static constexpr PackedLayout kLayout = packed_layout(type);

  static void unpack(const std::byte* data, int begin, int count, float* to) {
    if constexpr (kLayout.scales == ScaleKind::kNone) {
      const auto source = StreamedFloats<W, type>::at(data, begin);
      for (int k = 0; k < count; ++k) W::store(to + 16 * k, source.load(source, k));
    } else {
      for (int g = begin / 32; g < (begin + count) / 32; ++g, to += 32 * 16) {
        const std::byte* block = data + static_cast<size_t>(g / kLayout.block_groups) * kLayout.block_bytes();
        unpack_group(block, g % kLayout.block_groups, to);
      }
    }
  }

 private:
  static void unpack_group(const std::byte* block, int g, float* to) {
    const std::byte* group = block + kLayout.header_bytes + g * kLayout.group_bytes;
    const GroupScales<W> s = load_scales<W, type>(block, g);
    unrolled<8>([&](auto quad) __attribute__((always_inline)) {
      const auto codes = load_quad<W, type, quad>(group);
      const F32 scale = multiplied(s.scale, s.pairs, quad / 4);
      unrolled<4>([&](auto k) __attribute__((always_inline)) {
        const auto code = W::and_i32(W::shr_i32(codes, 8 * k), W::set1_i32(255));
        const F32 value = W::to_f32(W::sub_i32(code, W::set1_i32(kLayout.zero)));
        if constexpr (kLayout.has_min()) {
          W::store(to + 16 * (4 * quad + k), W::fma(value, scale, multiplied(s.min, s.min_pairs, quad / 4)));
        } else {
          W::store(to + 16 * (4 * quad + k), W::mul(value, scale));
        }
      });
    });
  }

  // The scale or minimum of one half of the group; exact.
  KERNEL_INLINE F32 multiplied(F32 scale, typename W::I32 pairs, int half) {
    if constexpr (kLayout.has_halves()) {
      const auto one = W::set1_i32(half == 0 ? 1 : 1 << 16);
      return W::mul(scale, W::to_f32(W::pair_dot(pairs, one)));
    } else {
      return scale;
    }
  }
};

// The inputs [begin, begin + count) of a panel, times some rows.
template <class W>
struct FloatTile {
  using F32 = typename W::F32;

  int begin;
  int count;
  const FloatRows& x;
  const PanelOutputs<W>& out;

  template <int kRows, class Source>
  void multiply(Source weights, int row) const {
    F32 acc[kRows];
    const float* values[kRows];
    unrolled<kRows>([&](auto r) __attribute__((always_inline)) {
      acc[r] = begin == 0 ? W::zero() : PanelOutputs<W>::load(out, row + r);
      values[r] = x.values + static_cast<size_t>(row + r) * x.stride + begin;
    });
    for (int k = 0; k < count; ++k) {
      const F32 w = weights.load(weights, k);
      unrolled<kRows>(
          [&](auto r) __attribute__((always_inline)) { acc[r] = W::fma(w, W::set1(values[r][k]), acc[r]); });
    }
    unrolled<kRows>([&](auto r)
                        __attribute__((always_inline)) { PanelOutputs<W>::store(out, row + r, acc[r]); });
  }

  template <class Source>
  void multiply_rows(Source weights, int row, int row_end) const {
    for (; row + W::kFloatRows <= row_end; row += W::kFloatRows) multiply<W::kFloatRows>(weights, row);
    for (; row + 2 <= row_end; row += 2) multiply<2>(weights, row);
    for (; row < row_end; ++row) multiply<1>(weights, row);
  }
};

template <class W, TensorType type>
struct FloatProduct {
  static void run(const PackedMatrix& w, const FloatRows& x, int panel_begin, int panel_end, ProductRows y,
                  std::byte* scratch) {
    if (x.rows == 0) return;
    auto* floats = reinterpret_cast<float*>(scratch);
    const int block = row_block(x.rows, static_cast<size_t>(x.in) * sizeof(float), W::kFloatRows);
    for (int row = 0; row < x.rows; row += block) {
      const int row_end = x.rows - row < block ? x.rows : row + block;
      for (int panel = panel_begin; panel < panel_end; ++panel) {
        const std::byte* data = w.data + static_cast<size_t>(panel) * w.panel_bytes;
        const auto out = PanelOutputs<W>::of(w, panel, y);
        for (int begin = 0; begin < w.in; begin += kFloatChunk) {
          const int count = w.in - begin < kFloatChunk ? w.in - begin : kFloatChunk;
          multiply_chunk(data, FloatTile<W>{begin, count, x, out}, row, row_end, floats);
        }
      }
    }
  }

 private:
  KERNEL_INLINE void multiply_chunk(const std::byte* data, const FloatTile<W>& tile, int row, int row_end,
                                    float* scratch) {
    if constexpr (packed_layout(type).scales == ScaleKind::kNone) {
      if (row_end - row <= 2) {
        tile.multiply_rows(StreamedFloats<W, type>::at(data, tile.begin), row, row_end);
        return;
      }
    }
    PanelFloats<W, type>::unpack(data, tile.begin, tile.count, scratch);
    tile.multiply_rows(CachedFloats<W>{scratch}, row, row_end);
  }
};

// One row of W as float32, by way of its whole panel.
template <class W, TensorType type>
struct RowUnpacker {
  static void run(const PackedMatrix& w, int row, float* destination) {
    alignas(64) float values[32 * 16];
    const std::byte* data = w.data + static_cast<size_t>(row / kPanelRows) * w.panel_bytes;
    for (int begin = 0; begin < w.in; begin += 32) {
      const int count = w.in - begin < 32 ? w.in - begin : 32;
      PanelFloats<W, type>::unpack(data, begin, count, values);
      for (int k = 0; k < count; ++k) destination[begin + k] = values[16 * k + row % kPanelRows];
    }
  }
};

}  // namespace quire
