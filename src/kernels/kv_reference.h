// Reads one token of a KV block by the words of docs/formats/kv_block.md, in double precision; for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/attention.h"

namespace quire {

inline KvTypes mixed(KvType key, KvType value) {
  KvTypes types = key;
  types.value = value;
  return types;
}

class KvReference {
 public:
  KvReference(const KvLayerView& kv, const std::byte* slice) : kv_(kv), slice_(slice) {
    tile_codes_ = code_bytes(kv.types.key, kv.key_dim) * 16;
    tile_bytes_ = tile_codes_ + 16 * scale_bytes(kv.types.key) * static_cast<size_t>(groups());
    values_ = (static_cast<size_t>(kv.block_tokens) + 15) / 16 * tile_bytes_;
    value_scales_ = values_ + static_cast<size_t>(kv.block_tokens) * code_bytes(kv.types.value, kv.value_dim);
  }

  [[nodiscard]] size_t bytes() const {
    const size_t used = value_scales_ + static_cast<size_t>(kv_.block_tokens) * scale_bytes(kv_.types.value);
    return (used + 63) / 64 * 64;
  }

  [[nodiscard]] std::vector<double> key(int slot) const {
    const std::byte* tile = slice_ + static_cast<size_t>(slot / 16) * tile_bytes_;
    std::vector<double> x;
    for (int d = 0; d < kv_.key_dim; ++d) {
      const size_t group = kv_.types.key == KvType::kInt4 ? static_cast<size_t>(d / 32) : 0;
      const std::byte* scales = tile + tile_codes_ + group * 16 * scale_bytes(kv_.types.key);
      const size_t row = kv_.types.key == KvType::kInt4 ? static_cast<size_t>(d / 2) : static_cast<size_t>(d);
      const size_t element = row * 16 + static_cast<size_t>(slot % 16);
      x.push_back(value_of(kv_.types.key, tile, element, d % 2, scales, 16, static_cast<size_t>(slot % 16)));
    }
    unrotate(kv_.types.key, x);
    return x;
  }

  [[nodiscard]] std::vector<double> value(int slot) const {
    const std::byte* row =
        slice_ + values_ + static_cast<size_t>(slot) * code_bytes(kv_.types.value, kv_.value_dim);
    std::vector<double> x;
    for (int d = 0; d < kv_.value_dim; ++d) {
      auto element = static_cast<size_t>(d);
      int half = 0;
      if (kv_.types.value == KvType::kInt4) {
        const int chunk = d / 32 * 32;
        const int chunk_bytes = (std::min(32, kv_.value_dim - chunk) + 1) / 2;
        half = (d - chunk) / chunk_bytes;
        element = static_cast<size_t>(chunk / 2 + (d - chunk) % chunk_bytes);
      }
      x.push_back(value_of(kv_.types.value, row, element, half, slice_ + value_scales_,
                           static_cast<size_t>(kv_.block_tokens), static_cast<size_t>(slot)));
    }
    unrotate(kv_.types.value, x);
    return x;
  }

  // x times a Hadamard matrix of the largest power of two that divides its size, block by block, and 1 / its
  // root.
  static void rotate(std::vector<double>& x) {
    const size_t block = x.size() & -x.size();
    for (size_t half = 1; half < block; half *= 2) {
      for (size_t i = 0; i < x.size(); ++i) {
        if ((i / half) % 2 != 0) continue;
        const double a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
    for (double& v : x) v /= std::sqrt(static_cast<double>(block));
  }

 private:
  [[nodiscard]] int groups() const { return kv_.types.key == KvType::kInt4 ? (kv_.key_dim + 31) / 32 : 1; }
  static size_t code_bytes(KvType type, int n) {
    const auto count = static_cast<size_t>(n);
    if (type == KvType::kF32) return 4 * count;
    if (type == KvType::kF16 || type == KvType::kBF16) return 2 * count;
    return type == KvType::kInt4 ? (count + 1) / 2 : count;
  }
  static size_t scale_bytes(KvType type) {
    if (type == KvType::kFp8) return 2;
    if (type == KvType::kInt8) return 4;
    return type == KvType::kInt4 ? 3 : 0;
  }

  template <class T>
  static T number_at(const std::byte* from, size_t index) {
    T number;
    std::memcpy(&number, from + index * sizeof(T), sizeof(T));
    return number;
  }
  // A small float by its definition: sign, exponent, mantissa; the largest exponent of f16 is infinity or
  // NaN.
  static double small_float(unsigned bits, int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const unsigned mantissa = bits & ((1u << mantissa_bits) - 1);
    const int exponent = static_cast<int>(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
    const double sign = (bits >> (exponent_bits + mantissa_bits) & 1u) != 0 ? -1 : 1;
    if (exponent_bits > 4 && exponent == (1 << exponent_bits) - 1) {
      return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                           : sign * std::numeric_limits<double>::infinity();
    }
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
  }
  static double f16_at(const std::byte* from, size_t index) {
    return small_float(number_at<uint16_t>(from, index), 5, 10);
  }

  static double value_of(KvType type, const std::byte* codes, size_t element, int half,
                         const std::byte* scales, size_t lanes, size_t lane) {
    switch (type) {
      case KvType::kF32:
        return number_at<float>(codes, element);
      case KvType::kF16:
        return f16_at(codes, element);
      case KvType::kBF16:
        return small_float(number_at<uint16_t>(codes, element), 8, 7);
      default:
        break;
    }
    const auto byte = number_at<uint8_t>(codes, element);
    const double scale = f16_at(scales, lane);
    if (type == KvType::kFp8) return small_float(byte, 4, 3) * scale;
    if (type == KvType::kInt8) return byte * scale + f16_at(scales + 2 * lanes, lane);
    const int code = half != 0 ? byte >> 4 : byte & 15;
    return (code - number_at<uint8_t>(scales + 2 * lanes, lane) / 16.0) * scale;
  }

  static void unrotate(KvType type, std::vector<double>& x) {
    if (type != KvType::kInt4) return;
    // Stored vectors have the factor 2^-floor(log2(block) / 2) in place of 1 / sqrt(block).
    const size_t block = x.size() & -x.size();
    rotate(x);
    const double factor = std::ldexp(1 / std::sqrt(static_cast<double>(block)), std::ilogb(block) / 2);
    for (double& v : x) v *= factor;
  }

  const KvLayerView kv_;
  const std::byte* slice_;
  size_t tile_codes_, tile_bytes_, values_, value_scales_;
};

}  // namespace quire
