// Where everything lies in a packed panel, type by type. docs/formats/packed_weights.md draws it.
//
// A panel is a run of blocks of 32 or 256 inputs. A block is a header with the scales of its 16 rows and then
// the codes of its groups of 32 inputs. The codes of a group are planes; within a plane a 32-bit lane belongs
// to one row and its 4 bytes to 4 consecutive inputs:
//   4 bits: [4 quads][16 rows][4]: low nibbles are quads 0 … 3, high nibbles quads 4 … 7;
//   1 bit:  [16 rows][4]: bit q is quad q;
//   2 bits: [2][16 rows][4]: bits 2q, 2q + 1 are quad q of the first or second half of the group;
//   8 bits: [8 quads][16 rows][4].
// A code of 5 bits is a 4-bit plane and a 1-bit plane, of 6 bits 4 + 2, of 3 bits 2 + 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/tensor_type.h"

namespace quire {

enum class ScaleKind : uint8_t {
  kNone,             // float weights: [in][16 rows]
  kHalf,             // f16 d [16]
  kHalfMin,          // f16 d [16], f16 m [16]
  kExponent,         // u8 e [16], 16 bytes of padding; the scale is 2^(e - 128)
  kSuper32Min,       // f16 d [16], f16 dmin [16], u8 scales [8 groups][16], u8 mins [8][16]
  kSuper16,          // f16 d [16], s8 scales [8 groups][16][2 halves]
  kSuper16NibbleMin  // f16 d [16], f16 dmin [16], u8 [8 groups][16][2]: low nibble scale, high nibble min
};

struct PackedLayout {
  ScaleKind scales = ScaleKind::kNone;
  int block_groups = 1;  // groups of 32 inputs in a block
  int code_bits = 0;     // as stored; 4 for types whose nibbles index a table
  int code_max = 0;      // largest code that the products see
  int zero = 0;          // weight = scale * (code - zero) + min
  int header_bytes = 0;
  int group_bytes = 0;

  [[nodiscard]] constexpr int block_bytes() const { return header_bytes + block_groups * group_bytes; }
  // Two multipliers per group of 32.
  [[nodiscard]] constexpr bool has_halves() const {
    return scales == ScaleKind::kSuper16 || scales == ScaleKind::kSuper16NibbleMin;
  }
  [[nodiscard]] constexpr bool has_min() const {
    return scales == ScaleKind::kHalfMin || scales == ScaleKind::kSuper32Min ||
           scales == ScaleKind::kSuper16NibbleMin;
  }
};

[[nodiscard]] constexpr PackedLayout packed_layout(TensorType type) {
  using enum ScaleKind;
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      return {};
    case TensorType::kQ4_0:
      return {kHalf, 1, 4, 15, 8, 32, 256};
    case TensorType::kQ4_1:
      return {kHalfMin, 1, 4, 15, 0, 64, 256};
    case TensorType::kQ5_0:
      return {kHalf, 1, 5, 31, 16, 32, 320};
    case TensorType::kQ5_1:
      return {kHalfMin, 1, 5, 31, 0, 64, 320};
    case TensorType::kQ8_0:
      return {kHalf, 1, 8, 255, 128, 32, 512};
    case TensorType::kIQ4_NL:
      return {kHalf, 1, 4, 241, 128, 32, 256};
    case TensorType::kMXFP4:
      return {kExponent, 1, 4, 24, 12, 32, 256};
    case TensorType::kQ2_K:
      return {kSuper16NibbleMin, 8, 2, 3, 0, 320, 128};
    case TensorType::kQ3_K:
      return {kSuper16, 8, 3, 7, 4, 288, 192};
    case TensorType::kQ4_K:
      return {kSuper32Min, 8, 4, 15, 0, 320, 256};
    case TensorType::kQ5_K:
      return {kSuper32Min, 8, 5, 31, 0, 320, 320};
    case TensorType::kQ6_K:
      return {kSuper16, 8, 6, 63, 32, 288, 384};
  }
  return {};
}

// Values of the 4-bit codes of IQ4_NL (ggml specification) and, doubled, of MXFP4's E2M1 elements (OCP
// Microscaling Formats 1.0, table 5).
inline constexpr std::array<int8_t, 16> kIq4NlValues = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::array<int8_t, 16> kMxfp4DoubledValues = {0, 1,  2,  3,  4,  6,  8,  12,
                                                               0, -1, -2, -3, -4, -6, -8, -12};

// Nibble to code: table value + zero.
template <TensorType type>
[[nodiscard]] constexpr std::array<uint8_t, 16> code_table() {
  std::array<uint8_t, 16> codes{};
  constexpr auto& values = type == TensorType::kIQ4_NL ? kIq4NlValues : kMxfp4DoubledValues;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(values[i] + packed_layout(type).zero);
  }
  return codes;
}

[[nodiscard]] constexpr bool has_code_table(TensorType type) {
  return type == TensorType::kIQ4_NL || type == TensorType::kMXFP4;
}

}  // namespace quire
