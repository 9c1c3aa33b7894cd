// Weight matrices as the kernels read them: panels of 16 output rows, a lane per row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "core/tensor_type.h"

namespace quire {

inline constexpr int kPanelRows = 16;
inline constexpr int kGroup = 32;  // inputs that share an activation scale

// A weight matrix W [out, in] (y = W x), packed. A view: the bytes belong to the model's weight arena.
// The layout does not depend on the ISA; docs/formats/packed_weights.md draws it. Panels are contiguous,
// panel p holds rows 16p … 16p + 15; rows beyond `out` are zero.
struct PackedMatrix {
  TensorType type = TensorType::kF32;
  int out = 0;
  int in = 0;
  const std::byte* data = nullptr;  // 64-byte aligned
  size_t panel_bytes = 0;

  [[nodiscard]] int panels() const { return ceil_div(out, kPanelRows); }
};

// Whether weights of this type are integer codes with scales, so that they multiply int8 activations.
[[nodiscard]] bool has_codes(TensorType type);

// Bytes of one panel; a multiple of 64. `in` is a multiple of the type's block_elements.
[[nodiscard]] size_t packed_panel_bytes(TensorType type, int in);

// Packs panels [panel_begin, panel_end) of the row-major file tensor `source` (out rows of in values) into
// `packed` (the bytes of the whole matrix). Threads may pack disjoint panels at the same time.
void pack_panels(TensorType type, int out, int in, std::span<const std::byte> source, int panel_begin,
                 int panel_end, std::byte* packed);

// One row of a file tensor as float32: the reference that everything else is checked against.
// source: one row's bytes; destination: [in].
void dequantize_row(TensorType type, std::span<const std::byte> source, std::span<float> destination);

}  // namespace quire
