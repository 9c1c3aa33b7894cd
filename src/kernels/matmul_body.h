// The product entries of a kernel table: from a tensor type to the code made for it.
#pragma once

#include "base/check.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul_float_body.h"
#include "kernels/matmul_int_body.h"
#include "kernels/matmul_wide_body.h"

namespace quire {

// W: the words of one ISA (simd_*.h); Tiles: its tile registers, which only matmul uses. Stateless; any
// thread.
template <class W, class Tiles = NoTiles>
class MatmulBody {
 public:
  static void matmul(const PackedMatrix& w, const QuantizedRows& x, int panel_begin, int panel_end,
                     ProductRows y, std::byte* scratch) {
    if (x.rows == 0) return;
    with_type(w.type, [&](auto type) {
      if constexpr (packed_layout(type()).scales != ScaleKind::kNone) {
        IntProduct<W, type(), Tiles>::run(w, x, panel_begin, panel_end, y, scratch);
      } else {
        UNREACHABLE();
      }
    });
  }

  static void matmul_wide(const PackedMatrix& w, const WideRows& x, int panel_begin, int panel_end,
                          ProductRows y) {
    if (x.rows == 0) return;
    with_type(w.type, [&](auto type) {
      if constexpr (packed_layout(type()).scales != ScaleKind::kNone) {
        WideProduct<W, type()>::run(w, x, panel_begin, panel_end, y);
      } else {
        UNREACHABLE();
      }
    });
  }

  static void matmul_float(const PackedMatrix& w, const FloatRows& x, int panel_begin, int panel_end,
                           ProductRows y, std::byte* scratch) {
    with_type(w.type,
              [&](auto type) { FloatProduct<W, type()>::run(w, x, panel_begin, panel_end, y, scratch); });
  }

  static void unpack_row(const PackedMatrix& w, int row, float* destination) {
    with_type(w.type, [&](auto type) { RowUnpacker<W, type()>::run(w, row, destination); });
  }

 private:
  template <TensorType type>
  struct Constant {
    constexpr TensorType operator()() const { return type; }
  };

  // Calls function(Constant<type>).
  template <class Function>
  static void with_type(TensorType type, Function function) {
    switch (type) {
      case TensorType::kF32:
        return function(Constant<TensorType::kF32>{});
      case TensorType::kF16:
        return function(Constant<TensorType::kF16>{});
      case TensorType::kBF16:
        return function(Constant<TensorType::kBF16>{});
      case TensorType::kQ4_0:
        return function(Constant<TensorType::kQ4_0>{});
      case TensorType::kQ4_1:
        return function(Constant<TensorType::kQ4_1>{});
      case TensorType::kQ5_0:
        return function(Constant<TensorType::kQ5_0>{});
      case TensorType::kQ5_1:
        return function(Constant<TensorType::kQ5_1>{});
      case TensorType::kQ8_0:
        return function(Constant<TensorType::kQ8_0>{});
      case TensorType::kQ2_K:
        return function(Constant<TensorType::kQ2_K>{});
      case TensorType::kQ3_K:
        return function(Constant<TensorType::kQ3_K>{});
      case TensorType::kQ4_K:
        return function(Constant<TensorType::kQ4_K>{});
      case TensorType::kQ5_K:
        return function(Constant<TensorType::kQ5_K>{});
      case TensorType::kQ6_K:
        return function(Constant<TensorType::kQ6_K>{});
      case TensorType::kIQ4_NL:
        return function(Constant<TensorType::kIQ4_NL>{});
      case TensorType::kMXFP4:
        return function(Constant<TensorType::kMXFP4>{});
    }
    UNREACHABLE();
  }
};

}  // namespace quire
