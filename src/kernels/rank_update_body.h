// The inner product of attention over the words of an ISA: C += A B for a few rows of A.
//
// Both phases use it: scores (B = K, a row a dimension, lanes are tokens) and outputs (B = V, a row a token,
// lanes are dimensions). Per element: c = fma(a[k], b[k], c), k ascending.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul_codes.h"
#include "kernels/simd_inline.h"

namespace quire {

// A or C: row r at data + r * stride.
template <class Float>
struct UpdateRows {
  Float* data;
  size_t stride;
};

enum class UpdateStart : uint8_t { kZero, kLoad };  // where C's values come from

// W: the words of one ISA (simd_*.h). Stateless; any thread. B is a source of kv_rows_body.h: its row k has
// 16 lanes, or 32 in two halves.
template <class W>
class RankUpdate {
 public:
  // Rows times vectors of accumulators that the registers hold, beside B's vectors and one broadcast of A.
  static constexpr int kRows = W::kFloatRows;          // most rows with 16 lanes
  static constexpr int kWideRows = W::kFloatRows / 2;  // most rows with 32 lanes

  // C (16 lanes a row) for `rows` <= kRows.
  template <UpdateStart start, class Source>
  static void narrow(int rows, UpdateRows<const float> a, const Source& b, UpdateRows<float> c) {
    choose<start, 1, kRows>(rows, a, b, c);
  }

  // C (32 lanes a row) for `rows` <= kWideRows.
  template <UpdateStart start, class Source>
  static void wide(int rows, UpdateRows<const float> a, const Source& b, UpdateRows<float> c) {
    choose<start, 2, kWideRows>(rows, a, b, c);
  }

 private:
  using F32 = typename W::F32;
  static_assert(W::kLanes == 16 && kWideRows > 0);

  template <UpdateStart start, int vectors, int rows_at_most, class Source>
  static void choose(int rows, UpdateRows<const float> a, const Source& b, UpdateRows<float> c) {
    if (rows == rows_at_most) {
      update<start, vectors, rows_at_most>(a, b, c);
    } else if constexpr (rows_at_most > 1) {
      choose<start, vectors, rows_at_most - 1>(rows, a, b, c);
    }
  }

  template <UpdateStart start, int vectors, int rows, class Source>
  static void update(UpdateRows<const float> a, const Source& b, UpdateRows<float> c) {
    F32 acc[rows][vectors];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) {
        acc[r][v] = start == UpdateStart::kZero ? W::zero() : W::load(c.data + r * c.stride + 16 * v);
      }
    }
    const auto end = static_cast<size_t>(b.rows);
    for (size_t k = 0; k < end; k += Source::kPhases) {
      unrolled<Source::kPhases>([&](auto phase) __attribute__((always_inline)) {
        if (phase != 0 && k + phase >= end) return;
        F32 lanes[vectors];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) {
          lanes[v] = b.template load<phase>(k + phase, v);
          b.template fetch<phase>(k + phase, v);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          const F32 factor = W::set1(a.data[r * a.stride + k + phase]);
#pragma GCC unroll 2
          for (int v = 0; v < vectors; ++v) acc[r][v] = W::fma(factor, lanes[v], acc[r][v]);
        }
      });
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) W::store(c.data + r * c.stride + 16 * v, acc[r][v]);
    }
  }
};

}  // namespace quire
