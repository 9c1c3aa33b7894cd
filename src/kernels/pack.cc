// File blocks of 16 rows to one packed block. Only 32-bit moves, shifts and masks: fast on every machine.
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/packed_layout.h"
#include "kernels/packed_matrix.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "model files and panels are little-endian");

// One file block of each of the panel's rows.
struct BlockRows {
  const uint8_t* row[kPanelRows];
};

uint32_t load32(const uint8_t* from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void store32(uint8_t* to, uint32_t value) {
  std::memcpy(to, &value, sizeof value);
}

// f16 values at `offset` of each block, side by side.
void pack_halves(const BlockRows& rows, int offset, uint8_t* out) {
  for (int r = 0; r < kPanelRows; ++r) std::memcpy(out + 2 * r, rows.row[r] + offset, 2);
}

// `quads` runs of 4 bytes from `offset` on: a transposition of 4-byte items.
template <int quads>
void pack_bytes(const BlockRows& rows, int offset, uint8_t* out) {
  for (int r = 0; r < kPanelRows; ++r) {
    const uint8_t* from = rows.row[r] + offset;
    for (int q = 0; q < quads; ++q) std::memcpy(out + 64 * q + 4 * r, from + 4 * q, 4);
  }
}

// The 4-bit plane from 32 bytes that hold a group's values in bits shift … shift + 3.
void pack_nibbles(const BlockRows& rows, int offset, int shift, uint8_t* out) {
  for (int r = 0; r < kPanelRows; ++r) {
    const uint8_t* from = rows.row[r] + offset;
    for (int q = 0; q < 4; ++q) {
      const uint32_t first = load32(from + 4 * q) >> shift & 0x0f0f0f0fu;
      const uint32_t second = load32(from + 16 + 4 * q) >> shift & 0x0f0f0f0fu;
      store32(out + 64 * q + 4 * r, first | second << 4);
    }
  }
}

// The 2-bit plane from 32 bytes that hold a group's values in bits shift, shift + 1.
void pack_pairs(const BlockRows& rows, int offset, int shift, uint8_t* out) {
  for (int r = 0; r < kPanelRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      const uint8_t* from = rows.row[r] + offset + 16 * half;
      uint32_t bits = 0;
      for (int q = 0; q < 4; ++q) bits |= (load32(from + 4 * q) >> shift & 0x03030303u) << (2 * q);
      store32(out + 64 * half + 4 * r, bits);
    }
  }
}

// The 1-bit plane from 32 bytes that hold a group's values in bit `shift`.
void pack_bits(const BlockRows& rows, int offset, int shift, uint8_t* out) {
  for (int r = 0; r < kPanelRows; ++r) {
    const uint8_t* from = rows.row[r] + offset;
    uint32_t bits = 0;
    for (int q = 0; q < 8; ++q) bits |= (load32(from + 4 * q) >> shift & 0x01010101u) << q;
    store32(out + 4 * r, bits);
  }
}

// Where the 8 consecutive inputs of a byte go: bit i to bit i / 4 of byte i % 4.
constexpr auto kSpreadBits = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (uint32_t i = 0; i < 8; ++i) table[byte] |= (byte >> i & 1u) << (8 * (i % 4) + i / 4);
  }
  return table;
}();

// The 1-bit plane from a 32-bit mask whose bit k is input k.
void pack_mask(const BlockRows& rows, int offset, uint8_t* out) {
  for (int r = 0; r < kPanelRows; ++r) {
    const uint8_t* from = rows.row[r] + offset;
    store32(out + 4 * r, kSpreadBits[from[0]] | kSpreadBits[from[1]] << 2 | kSpreadBits[from[2]] << 4 |
                             kSpreadBits[from[3]] << 6);
  }
}

// The 6-bit scales and minimums of Q4_K and Q5_K at `offset`.
void pack_scales_k4(const BlockRows& rows, int offset, uint8_t* scales, uint8_t* mins) {
  for (int r = 0; r < kPanelRows; ++r) {
    const uint8_t* from = rows.row[r] + offset;
    for (int g = 0; g < 4; ++g) {
      scales[16 * g + r] = from[g] & 63;
      mins[16 * g + r] = from[g + 4] & 63;
      scales[16 * (g + 4) + r] = static_cast<uint8_t>((from[g + 8] & 15) | from[g] >> 6 << 4);
      mins[16 * (g + 4) + r] = static_cast<uint8_t>(from[g + 8] >> 4 | from[g + 4] >> 6 << 4);
    }
  }
}

// 16 one-byte scales, two a group.
void pack_scales_16(const BlockRows& rows, int offset, uint8_t* out) {
  for (int r = 0; r < kPanelRows; ++r) {
    for (int g = 0; g < 8; ++g) std::memcpy(out + 32 * g + 2 * r, rows.row[r] + offset + 2 * g, 2);
  }
}

// The 6-bit scales of Q3_K: low nibbles in 8 bytes, then 2 high bits each in 4 bytes; stored plus 32.
void pack_scales_k3(const BlockRows& rows, int offset, uint8_t* out) {
  for (int r = 0; r < kPanelRows; ++r) {
    const uint8_t* from = rows.row[r] + offset;
    for (int j = 0; j < 16; ++j) {
      const int low = j < 8 ? from[j] & 15 : from[j - 8] >> 4;
      const int high = from[8 + j % 4] >> (2 * (j / 4)) & 3;
      out[32 * (j / 2) + 2 * r + j % 2] = static_cast<uint8_t>((low | high << 4) - 32);
    }
  }
}

void pack_exponents(const BlockRows& rows, uint8_t* out) {
  for (int r = 0; r < kPanelRows; ++r) out[r] = rows.row[r][0];
  std::memset(out + kPanelRows, 0, kPanelRows);
}

// Codes of Q8_0 are stored plus 128.
void pack_q8_0(const BlockRows& rows, uint8_t* out) {
  pack_halves(rows, 0, out);
  for (int r = 0; r < kPanelRows; ++r) {
    for (int q = 0; q < 8; ++q)
      store32(out + 32 + 64 * q + 4 * r, load32(rows.row[r] + 2 + 4 * q) ^ 0x80808080u);
  }
}

// Q4_K or Q5_K, which has its fifth bits between the scales and the nibbles.
void pack_k4_k5(TensorType type, const BlockRows& rows, uint8_t* out) {
  const bool fifth_bit = type == TensorType::kQ5_K;
  const int group_bytes = packed_layout(type).group_bytes;
  const int codes = fifth_bit ? 48 : 16;
  pack_halves(rows, 0, out);
  pack_halves(rows, 2, out + 32);
  pack_scales_k4(rows, 4, out + 64, out + 192);
  for (int g = 0; g < 8; ++g) {
    uint8_t* group = out + 320 + g * group_bytes;
    pack_nibbles(rows, codes + 32 * (g / 2), 4 * (g % 2), group);
    if (fifth_bit) pack_bits(rows, 16, g, group + 256);
  }
}

void pack_q6_k(const BlockRows& rows, uint8_t* out) {
  pack_halves(rows, 208, out);
  pack_scales_16(rows, 192, out + 32);
  for (int g = 0; g < 8; ++g) {
    uint8_t* group = out + 288 + 384 * g;
    pack_nibbles(rows, 64 * (g / 4) + 32 * (g % 2), g % 4 / 2 * 4, group);
    pack_pairs(rows, 128 + 32 * (g / 4), 2 * (g % 4), group + 256);
  }
}

void pack_q3_k(const BlockRows& rows, uint8_t* out) {
  pack_halves(rows, 108, out);
  pack_scales_k3(rows, 96, out + 32);
  for (int g = 0; g < 8; ++g) {
    pack_pairs(rows, 32 + 32 * (g / 4), 2 * (g % 4), out + 288 + 192 * g);
    pack_bits(rows, 0, g, out + 288 + 192 * g + 128);
  }
}

void pack_q2_k(const BlockRows& rows, uint8_t* out) {
  pack_halves(rows, 80, out);
  pack_halves(rows, 82, out + 32);
  pack_scales_16(rows, 0, out + 64);
  for (int g = 0; g < 8; ++g) pack_pairs(rows, 16 + 32 * (g / 4), 2 * (g % 4), out + 320 + 128 * g);
}

void pack_block(TensorType type, const BlockRows& rows, uint8_t* out) {
  switch (type) {
    case TensorType::kF32:
      return pack_bytes<1>(rows, 0, out);
    case TensorType::kF16:
    case TensorType::kBF16:
      return pack_halves(rows, 0, out);
    case TensorType::kQ4_0:
    case TensorType::kIQ4_NL:
      pack_halves(rows, 0, out);
      return pack_bytes<4>(rows, 2, out + 32);
    case TensorType::kQ4_1:
      pack_halves(rows, 0, out);
      pack_halves(rows, 2, out + 32);
      return pack_bytes<4>(rows, 4, out + 64);
    case TensorType::kQ5_0:
      pack_halves(rows, 0, out);
      pack_bytes<4>(rows, 6, out + 32);
      return pack_mask(rows, 2, out + 288);
    case TensorType::kQ5_1:
      pack_halves(rows, 0, out);
      pack_halves(rows, 2, out + 32);
      pack_bytes<4>(rows, 8, out + 64);
      return pack_mask(rows, 4, out + 320);
    case TensorType::kQ8_0:
      return pack_q8_0(rows, out);
    case TensorType::kMXFP4:
      pack_exponents(rows, out);
      return pack_bytes<4>(rows, 1, out + 32);
    case TensorType::kQ2_K:
      return pack_q2_k(rows, out);
    case TensorType::kQ3_K:
      return pack_q3_k(rows, out);
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return pack_k4_k5(type, rows, out);
    case TensorType::kQ6_K:
      return pack_q6_k(rows, out);
  }
  UNREACHABLE();
}

// What rows beyond the matrix are packed from: every scale in it is zero.
constexpr uint8_t kZeroBlock[256] = {};

}  // namespace

void pack_panels(TensorType type, int out, int in, std::span<const std::byte> source, int panel_begin,
                 int panel_end, std::byte* packed) {
  const TensorTypeInfo& info = tensor_type_info(type);
  const size_t panel_bytes = packed_panel_bytes(type, in);
  const auto blocks = static_cast<size_t>(in / info.block_elements);
  const size_t row_bytes = blocks * static_cast<size_t>(info.block_bytes);
  CHECK(out > 0 && 0 <= panel_begin && panel_end <= ceil_div(out, kPanelRows));
  CHECK(source.size() >= row_bytes * static_cast<size_t>(out));
  const size_t packed_block_bytes =
      has_codes(type) ? packed_layout(type).block_bytes() : kPanelRows * info.block_bytes;
  const auto* first_row = reinterpret_cast<const uint8_t*>(source.data());
  for (int panel = panel_begin; panel < panel_end; ++panel) {
    BlockRows rows;
    size_t step[kPanelRows];
    for (int r = 0; r < kPanelRows; ++r) {
      const int row = panel * kPanelRows + r;
      rows.row[r] = row < out ? first_row + static_cast<size_t>(row) * row_bytes : kZeroBlock;
      step[r] = row < out ? static_cast<size_t>(info.block_bytes) : 0;
    }
    auto* to = reinterpret_cast<uint8_t*>(packed) + static_cast<size_t>(panel) * panel_bytes;
    for (size_t block = 0; block < blocks; ++block) {
      pack_block(type, rows, to + block * packed_block_bytes);
      for (int r = 0; r < kPanelRows; ++r) rows.row[r] += step[r];
    }
    std::memset(to + blocks * packed_block_bytes, 0, panel_bytes - blocks * packed_block_bytes);
  }
}

}  // namespace quire
