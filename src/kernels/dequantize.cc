// File blocks to float32, value by value, as the GGUF specification writes it: the reference for the packed
// path, so it shares nothing with it.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/half_float.h"
#include "kernels/packed_layout.h"
#include "kernels/packed_matrix.h"

namespace quire {
namespace {

float half_at(const uint8_t* from) {
  return f16_to_f32(static_cast<uint16_t>(from[0] | from[1] << 8));
}

// Blocks of 32: value k of the first half is a low nibble, of the second half a high one.
int nibble(const uint8_t* bytes, int k) {
  return k < 16 ? bytes[k] & 15 : bytes[k - 16] >> 4;
}

int mask_bit(const uint8_t* mask, int k) {
  return mask[k / 8] >> (k % 8) & 1;
}

float value_of_32(TensorType type, const uint8_t* b, int k) {
  switch (type) {
    case TensorType::kQ4_0:
      return half_at(b) * static_cast<float>(nibble(b + 2, k) - 8);
    case TensorType::kQ4_1:
      return half_at(b) * static_cast<float>(nibble(b + 4, k)) + half_at(b + 2);
    case TensorType::kQ5_0:
      return half_at(b) * static_cast<float>((nibble(b + 6, k) | mask_bit(b + 2, k) << 4) - 16);
    case TensorType::kQ5_1:
      return half_at(b) * static_cast<float>(nibble(b + 8, k) | mask_bit(b + 4, k) << 4) + half_at(b + 2);
    case TensorType::kQ8_0:
      return half_at(b) * static_cast<float>(static_cast<int8_t>(b[2 + k]));
    case TensorType::kIQ4_NL:
      return half_at(b) * static_cast<float>(kIq4NlValues[nibble(b + 2, k)]);
    case TensorType::kMXFP4:
      return std::ldexp(static_cast<float>(kMxfp4DoubledValues[nibble(b + 1, k)]), b[0] - 128);
    default:
      UNREACHABLE();
  }
}

// Super-blocks of 256: value k lies in group g = k / 32. In Q2_K, Q3_K and Q6_K four groups share 32 bytes of
// 2-bit fields.
int pair_field(const uint8_t* bytes, int k) {
  return bytes[k / 128 * 32 + k % 32] >> (k / 32 % 4 * 2) & 3;
}

struct ScaleMin {
  int scale;
  int min;
};

ScaleMin scale_min_k4(const uint8_t* s, int g) {
  if (g < 4) return {s[g] & 63, s[g + 4] & 63};
  return {(s[g + 4] & 15) | s[g - 4] >> 6 << 4, s[g + 4] >> 4 | s[g] >> 6 << 4};
}

float value_q2_k(const uint8_t* b, int k) {
  const int scales = b[k / 16];
  const float scale = half_at(b + 80) * static_cast<float>(scales & 15);
  const float min = half_at(b + 82) * static_cast<float>(scales >> 4);
  return scale * static_cast<float>(pair_field(b + 16, k)) - min;
}

float value_q3_k(const uint8_t* b, int k) {
  const int j = k / 16;
  const uint8_t* s = b + 96;
  const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
  const int scale = (low | (s[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32;
  const int high = b[k % 32] >> (k / 32) & 1;
  return half_at(b + 108) * static_cast<float>(scale) *
         static_cast<float>(pair_field(b + 32, k) - (high != 0 ? 0 : 4));
}

float value_q4_k_q5_k(TensorType type, const uint8_t* b, int k) {
  const bool fifth_bit = type == TensorType::kQ5_K;
  const int g = k / 32;
  const ScaleMin s = scale_min_k4(b + 4, g);
  const uint8_t* codes = b + (fifth_bit ? 48 : 16);
  int code = codes[g / 2 * 32 + k % 32] >> (g % 2 * 4) & 15;
  if (fifth_bit) code |= (b[16 + k % 32] >> g & 1) << 4;
  return half_at(b) * static_cast<float>(s.scale) * static_cast<float>(code) -
         half_at(b + 2) * static_cast<float>(s.min);
}

float value_q6_k(const uint8_t* b, int k) {
  const int g = k / 32;
  const int low = b[g / 4 * 64 + g % 2 * 32 + k % 32] >> (g % 4 / 2 * 4) & 15;
  const int scale = static_cast<int8_t>(b[192 + k / 16]);
  return half_at(b + 208) * static_cast<float>(scale) *
         static_cast<float>((low | pair_field(b + 128, k) << 4) - 32);
}

float value_of_256(TensorType type, const uint8_t* b, int k) {
  switch (type) {
    case TensorType::kQ2_K:
      return value_q2_k(b, k);
    case TensorType::kQ3_K:
      return value_q3_k(b, k);
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return value_q4_k_q5_k(type, b, k);
    case TensorType::kQ6_K:
      return value_q6_k(b, k);
    default:
      UNREACHABLE();
  }
}

float value_of_1(TensorType type, const uint8_t* b) {
  if (type == TensorType::kF16) return half_at(b);
  if (type == TensorType::kBF16) return bf16_to_f32(static_cast<uint16_t>(b[0] | b[1] << 8));
  float value;
  std::memcpy(&value, b, sizeof value);
  return value;
}

}  // namespace

void dequantize_row(TensorType type, std::span<const std::byte> source, std::span<float> destination) {
  const TensorTypeInfo& info = tensor_type_info(type);
  const auto elements = static_cast<size_t>(info.block_elements);
  CHECK(destination.size() % elements == 0);
  CHECK(source.size() >= destination.size() / elements * static_cast<size_t>(info.block_bytes));
  const auto* block = reinterpret_cast<const uint8_t*>(source.data());
  for (size_t i = 0; i < destination.size(); i += elements, block += info.block_bytes) {
    for (size_t k = 0; k < elements; ++k) {
      const int index = static_cast<int>(k);
      destination[i + k] = elements == 1    ? value_of_1(type, block)
                           : elements == 32 ? value_of_32(type, block, index)
                                            : value_of_256(type, block, index);
    }
  }
}

}  // namespace quire
