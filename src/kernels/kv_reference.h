// Reads one token of a KV block by the words of docs/formats/kv_block.md, in double precision; for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/attention.h"

namespace quire {

class KvReference {
 public:
  KvReference(const KvLayerView& kv, const std::byte* slice) : kv_(kv), slice_(slice) {
    tile_scales_ = 16 * (code_bytes(kv.key_dim) + sign_bytes());
    tile_bytes_ = tile_scales_ + 16 * scale_bytes();
    values_ = (static_cast<size_t>(kv.block_tokens) + 15) / 16 * tile_bytes_;
    value_scales_ = values_ + static_cast<size_t>(kv.block_tokens) * code_bytes(kv.value_dim);
  }

  [[nodiscard]] size_t bytes() const {
    const size_t used = value_scales_ + static_cast<size_t>(kv_.block_tokens) * scale_bytes();
    return (used + 63) / 64 * 64;
  }

  [[nodiscard]] std::vector<double> key(int slot) const {
    const std::byte* tile = slice_ + static_cast<size_t>(slot / 16) * tile_bytes_;
    const auto lane = static_cast<size_t>(slot % 16);
    std::vector<double> x;
    for (int d = 0; d < kv_.key_dim; ++d) {
      const auto dim = static_cast<size_t>(d);
      if (kv_.type == KvType::kInt4) {
        const int magnitude = nibble(tile[dim / 2 * 16 + lane], d % 2);
        const std::byte* signs = tile + 16 * code_bytes(kv_.key_dim);
        const bool negative = (number_at<uint8_t>(signs, dim / 8 * 16 + lane) >> (d % 8) & 1) != 0;
        x.push_back(key_level(magnitude) * (negative ? -1 : 1) * short_scale(tile[tile_scales_ + lane]));
      } else {
        x.push_back(value_of(tile, dim * 16 + lane, tile + tile_scales_, 16, lane));
      }
    }
    unrotate(x);
    return x;
  }

  [[nodiscard]] std::vector<double> value(int slot) const {
    const std::byte* row = slice_ + values_ + static_cast<size_t>(slot) * code_bytes(kv_.value_dim);
    const auto token = static_cast<size_t>(slot);
    std::vector<double> x;
    for (int d = 0; d < kv_.value_dim; ++d) {
      if (kv_.type == KvType::kInt4) {
        const int chunk = d / 32 * 32;
        const int chunk_bytes = (std::min(32, kv_.value_dim - chunk) + 1) / 2;
        const auto at = static_cast<size_t>(chunk / 2 + (d - chunk) % chunk_bytes);
        const int code = nibble(row[at], (d - chunk) / chunk_bytes);
        x.push_back(value_level(code) * short_scale(slice_[value_scales_ + token]));
      } else {
        x.push_back(value_of(row, static_cast<size_t>(d), slice_ + value_scales_,
                             static_cast<size_t>(kv_.block_tokens), token));
      }
    }
    unrotate(x);
    return x;
  }

  // int4's levels of K (magnitudes) and V, in scales.
  static double key_level(int index) {
    constexpr double kLevels[] = {2.5,  7.5,  12.5, 17.5, 22.5, 28.5, 33.5,  39.5,
                                  45.5, 52.5, 59.5, 67.5, 76.5, 87.5, 101.5, 122.5};
    return kLevels[index];
  }
  static double value_level(int code) {
    constexpr double kLevels[] = {5.5, 16.5, 27.5, 39.5, 52.5, 67.5, 86.5, 114.5};
    return code < 8 ? -kLevels[7 - code] : kLevels[code - 8];
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
  [[nodiscard]] size_t sign_bytes() const {
    return kv_.type == KvType::kInt4 ? (static_cast<size_t>(kv_.key_dim) + 7) / 8 : 0;
  }
  [[nodiscard]] size_t code_bytes(int n) const {
    const auto count = static_cast<size_t>(n);
    if (kv_.type == KvType::kF32) return 4 * count;
    if (kv_.type == KvType::kF16 || kv_.type == KvType::kBF16) return 2 * count;
    return kv_.type == KvType::kInt4 ? (count + 1) / 2 : count;
  }
  [[nodiscard]] size_t scale_bytes() const {
    if (kv_.type == KvType::kFp8) return 2;
    if (kv_.type == KvType::kInt8) return 4;
    return kv_.type == KvType::kInt4 ? 1 : 0;
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

  static int nibble(std::byte both, int half) {
    return half != 0 ? static_cast<int>(both) >> 4 : static_cast<int>(both) & 15;
  }
  // A float of one byte without a sign; 0 is zero, 255 NaN.
  static double short_scale(std::byte byte) {
    const int bits = static_cast<int>(byte);
    if (bits == 0) return 0;
    if (bits == 255) return std::numeric_limits<double>::quiet_NaN();
    return std::ldexp(8 + bits % 8, bits / 8 - 27);
  }

  // Of the other types.
  [[nodiscard]] double value_of(const std::byte* codes, size_t element, const std::byte* scales, size_t lanes,
                                size_t lane) const {
    switch (kv_.type) {
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
    if (kv_.type == KvType::kFp8) return small_float(byte, 4, 3) * scale;
    return byte * scale + f16_at(scales + 2 * lanes, lane);
  }

  void unrotate(std::vector<double>& x) const {
    if (kv_.type != KvType::kInt4) return;
    // Stored vectors have the factor 2^-floor(log2(block) / 2) in place of 1 / sqrt(block).
    const size_t block = x.size() & -x.size();
    rotate(x);
    const double factor = std::ldexp(1 / std::sqrt(static_cast<double>(block)), std::ilogb(block) / 2);
    for (double& v : x) v *= factor;
  }

  const KvLayerView kv_;
  const std::byte* slice_;
  size_t tile_scales_, tile_bytes_, values_, value_scales_;
};

}  // namespace quire
