// The words in which kernel bodies are written, in plain C++: the reference that every instruction set must
// equal bit for bit.
//
// All words struct have the same members. A vector always has 16 lanes, whatever the registers are: F32 and
// I32 are 16 lanes of 32 bits, Bytes is 16 lanes of 4 bytes (one output row's codes of 4 consecutive inputs).
// Bodies: template <class W> …, W::F32 acc = W::fma(a, b, acc).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/half_float.h"

// Calls, not inlined: the bodies unroll by force, which plain loops of 16 lanes would blow up.
#define SCALAR_WORD [[maybe_unused, gnu::noinline]] static

namespace quire {

struct ScalarWords {
  static constexpr int kLanes = 16;
  // Rows of activations that the many-row kernels keep in registers.
  static constexpr int kIntRows = 4;
  static constexpr int kFloatRows = 4;

  struct F32 {
    float lane[kLanes];
  };
  struct I32 {
    int32_t lane[kLanes];
  };
  using Bytes = I32;
  using Dot = I32;

  // --- float lanes ---
  SCALAR_WORD F32 set1(float value) {
    return map([&](int) { return value; });
  }
  SCALAR_WORD F32 zero() { return set1(0.0f); }
  SCALAR_WORD F32 load(const float* from) {
    return map([&](int i) { return from[i]; });
  }
  SCALAR_WORD void store(float* to, F32 a) { std::memcpy(to, a.lane, sizeof a.lane); }
  // Lanes below `count` (0 … 16); the others read as zero and are not touched in memory.
  SCALAR_WORD F32 load_first(const float* from, int count) {
    return map([&](int i) { return i < count ? from[i] : 0.0f; });
  }
  SCALAR_WORD void store_first(float* to, F32 a, int count) {
    for (int i = 0; i < count; ++i) to[i] = a.lane[i];
  }
  // a in lanes below `count`, b in the others.
  SCALAR_WORD F32 select_first(int count, F32 a, F32 b) {
    return map([&](int i) { return i < count ? a.lane[i] : b.lane[i]; });
  }
  SCALAR_WORD F32 add(F32 a, F32 b) {
    return map([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  SCALAR_WORD F32 sub(F32 a, F32 b) {
    return map([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  SCALAR_WORD F32 mul(F32 a, F32 b) {
    return map([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  SCALAR_WORD F32 div(F32 a, F32 b) {
    return map([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  // a * b + c, rounded once.
  SCALAR_WORD F32 fma(F32 a, F32 b, F32 c) {
    return map([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  // The second operand when one is NaN, as on x86.
  SCALAR_WORD F32 max(F32 a, F32 b) {
    return map([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  SCALAR_WORD F32 min(F32 a, F32 b) {
    return map([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  SCALAR_WORD F32 sqrt(F32 a) {
    return map([&](int i) { return std::sqrt(a.lane[i]); });
  }
  SCALAR_WORD F32 round_even(F32 a) {
    return map([&](int i) { return std::nearbyint(a.lane[i]); });
  }
  // x in lanes where a < b, y in the others.
  SCALAR_WORD F32 select_less(F32 a, F32 b, F32 x, F32 y) {
    return map([&](int i) { return a.lane[i] < b.lane[i] ? x.lane[i] : y.lane[i]; });
  }
  // One shape everywhere: lane i with lane i + 8, then i + 4, i + 2, i + 1.
  SCALAR_WORD float reduce_add(F32 a) {
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) a.lane[i] = a.lane[i] + a.lane[i + half];
    return a.lane[0];
  }
  SCALAR_WORD float reduce_max(F32 a) {
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) a.lane[i] = a.lane[i] > a.lane[i + half] ? a.lane[i] : a.lane[i + half];
    return a.lane[0];
  }

  // --- 16-bit floats in memory ---
  SCALAR_WORD F32 load_f16(const void* from) {
    return map([&](int i) { return f16_to_f32(half_at(from, i)); });
  }
  SCALAR_WORD void store_f16(void* to, F32 a) {
    uint16_t halves[kLanes];
    for (int i = 0; i < kLanes; ++i) halves[i] = f32_to_f16(a.lane[i]);
    std::memcpy(to, halves, sizeof halves);
  }
  SCALAR_WORD F32 load_bf16(const void* from) {
    return map([&](int i) { return bf16_to_f32(half_at(from, i)); });
  }

  // --- integer lanes ---
  SCALAR_WORD I32 set1_i32(int32_t value) {
    return map_i32([&](int) { return value; });
  }
  SCALAR_WORD I32 load_i32(const void* from) {
    I32 a;
    std::memcpy(a.lane, from, sizeof a.lane);
    return a;
  }
  SCALAR_WORD void store_i32(void* to, I32 a) { std::memcpy(to, a.lane, sizeof a.lane); }
  SCALAR_WORD I32 add_i32(I32 a, I32 b) {
    return map_i32([&](int i) { return static_cast<int32_t>(bits(a, i) + bits(b, i)); });
  }
  SCALAR_WORD I32 sub_i32(I32 a, I32 b) {
    return map_i32([&](int i) { return static_cast<int32_t>(bits(a, i) - bits(b, i)); });
  }
  // The low 32 bits.
  SCALAR_WORD I32 mul_i32(I32 a, I32 b) {
    return map_i32([&](int i) { return static_cast<int32_t>(bits(a, i) * bits(b, i)); });
  }
  SCALAR_WORD I32 and_i32(I32 a, I32 b) {
    return map_i32([&](int i) { return a.lane[i] & b.lane[i]; });
  }
  SCALAR_WORD I32 or_i32(I32 a, I32 b) {
    return map_i32([&](int i) { return a.lane[i] | b.lane[i]; });
  }
  SCALAR_WORD I32 shl_i32(I32 a, int count) {
    return map_i32([&](int i) { return static_cast<int32_t>(bits(a, i) << count); });
  }
  SCALAR_WORD I32 xor_i32(I32 a, I32 b) {
    return map_i32([&](int i) { return a.lane[i] ^ b.lane[i]; });
  }
  // Fills with zeros.
  SCALAR_WORD I32 shr_i32(I32 a, int count) {
    return map_i32([&](int i) { return static_cast<int32_t>(bits(a, i) >> count); });
  }
  SCALAR_WORD I32 max_i32(I32 a, I32 b) {
    return map_i32([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  SCALAR_WORD int32_t reduce_max_i32(I32 a) {
    int32_t most = a.lane[0];
    for (int32_t lane : a.lane) most = lane > most ? lane : most;
    return most;
  }
  SCALAR_WORD int32_t reduce_add_i32(I32 a) {
    uint32_t sum = 0;
    for (int32_t lane : a.lane) sum += static_cast<uint32_t>(lane);
    return static_cast<int32_t>(sum);
  }
  // Nearest even; |a| < 2^31.
  SCALAR_WORD I32 to_i32(F32 a) {
    return map_i32([&](int i) { return static_cast<int32_t>(std::nearbyint(a.lane[i])); });
  }
  SCALAR_WORD F32 to_f32(I32 a) {
    return map([&](int i) { return static_cast<float>(a.lane[i]); });
  }
  SCALAR_WORD F32 as_f32(I32 a) { return std::bit_cast<F32>(a); }
  SCALAR_WORD I32 as_i32(F32 a) { return std::bit_cast<I32>(a); }
  // 16 lanes, each in [-128, 127], to 16 consecutive bytes.
  SCALAR_WORD void store_i8(int8_t* to, I32 a) {
    for (int i = 0; i < kLanes; ++i) to[i] = static_cast<int8_t>(a.lane[i]);
  }
  SCALAR_WORD I32 load_u8(const void* from) {
    return map_i32([&](int i) { return static_cast<const uint8_t*>(from)[i]; });
  }

  // --- weight codes ---
  SCALAR_WORD Bytes broadcast4(const void* from) {
    int32_t quad;
    std::memcpy(&quad, from, sizeof quad);
    return set1_i32(quad);
  }
  SCALAR_WORD Bytes lookup(const uint8_t* table, Bytes nibbles) {
    return map_i32([&](int i) {
      uint32_t quad = 0;
      for (int k = 0; k < 4; ++k) quad |= uint32_t{table[byte_at(nibbles, i, k) & 15]} << (8 * k);
      return static_cast<int32_t>(quad);
    });
  }
  // 16 bytes, four times.
  SCALAR_WORD Bytes repeat16(const void* from) {
    return map_i32([&](int i) {
      int32_t quad;
      std::memcpy(&quad, static_cast<const char*>(from) + i % 4 * 4, sizeof quad);
      return quad;
    });
  }
  // The four quarters of 16 bytes, `stride` bytes from one to the next.
  SCALAR_WORD void store_quarters(void* to, size_t stride, Bytes a) {
    for (size_t i = 0; i < 4; ++i) std::memcpy(static_cast<char*>(to) + i * stride, a.lane + 4 * i, 16);
  }
  // All ones in bytes that are equal.
  SCALAR_WORD Bytes equal_bytes(Bytes a, Bytes b) {
    return map_i32([&](int i) {
      uint32_t quad = 0;
      for (int k = 0; k < 4; ++k) quad |= byte_at(a, i, k) == byte_at(b, i, k) ? 255u << (8 * k) : 0u;
      return static_cast<int32_t>(quad);
    });
  }
  // The i16 pair (even, odd) of a lane, from 32 consecutive bytes.
  SCALAR_WORD I32 load_pairs_s8(const void* from) {
    return map_i32([&](int i) {
      const auto* bytes = static_cast<const int8_t*>(from) + 2 * i;
      return pair_of(bytes[0], bytes[1]);
    });
  }
  SCALAR_WORD I32 load_pairs_u8(const void* from) {
    return map_i32([&](int i) {
      const auto* bytes = static_cast<const uint8_t*>(from) + 2 * i;
      return pair_of(bytes[0], bytes[1]);
    });
  }
  // Both i16 products of a lane, added.
  SCALAR_WORD I32 pair_dot(I32 a, I32 b) {
    return map_i32([&](int i) { return low(a, i) * low(b, i) + high(a, i) * high(b, i); });
  }

  // sum + pair_dot(a, b).
  SCALAR_WORD I32 pair_dot_add(I32 sum, I32 a, I32 b) { return add_i32(sum, pair_dot(a, b)); }
  // Bytes 1 and 3 of a lane as an i16 pair.
  SCALAR_WORD I32 high_bytes(Bytes a) {
    return map_i32([&](int i) { return pair_of(byte_at(a, i, 1), byte_at(a, i, 3)); });
  }

  // --- dots of 4 codes (unsigned) with 4 activations (signed) per lane ---
  // A Dot takes dot_steps(code_max) quads and is then emptied by dot_sum or dot_scaled.
  static constexpr int dot_steps(int /*code_max*/) { return 8; }
  // Codes beyond what a Dot can hold are handled as two planes of 4 bits.
  static constexpr int dot_planes(int /*code_max*/) { return 1; }
  SCALAR_WORD Dot dot_start(Bytes codes, Bytes activations) { return dot(set1_i32(0), codes, activations); }
  SCALAR_WORD Dot dot(Dot sum, Bytes codes, Bytes activations) {
    return map_i32([&](int i) {
      int32_t lane = sum.lane[i];
      for (int k = 0; k < 4; ++k)
        lane += byte_at(codes, i, k) * static_cast<int8_t>(byte_at(activations, i, k));
      return lane;
    });
  }
  SCALAR_WORD I32 dot_sum(Dot a) { return a; }
  // dot_sum(a) * scale. `scale` is made by scale_low or scale_high from an i16 pair.
  SCALAR_WORD I32 dot_scaled(Dot a, I32 scale) {
    return map_i32([&](int i) { return a.lane[i] * scale.lane[i]; });
  }
  SCALAR_WORD I32 scale_low(I32 pairs) {
    return map_i32([&](int i) { return low(pairs, i); });
  }
  SCALAR_WORD I32 scale_high(I32 pairs) {
    return map_i32([&](int i) { return high(pairs, i); });
  }

  SCALAR_WORD void prefetch(const void* from) { __builtin_prefetch(from, 0, 2); }

 private:
  template <class F>
  SCALAR_WORD F32 map(F function) {
    F32 a;
    for (int i = 0; i < kLanes; ++i) a.lane[i] = function(i);
    return a;
  }
  template <class F>
  SCALAR_WORD I32 map_i32(F function) {
    I32 a;
    for (int i = 0; i < kLanes; ++i) a.lane[i] = function(i);
    return a;
  }
  SCALAR_WORD uint16_t half_at(const void* from, int index) {
    uint16_t half;
    std::memcpy(&half, static_cast<const char*>(from) + 2 * index, sizeof half);
    return half;
  }
  SCALAR_WORD uint32_t bits(I32 a, int i) { return static_cast<uint32_t>(a.lane[i]); }
  SCALAR_WORD int32_t byte_at(I32 a, int i, int k) {
    return static_cast<int32_t>(bits(a, i) >> (8 * k) & 255u);
  }
  SCALAR_WORD int32_t low(I32 a, int i) { return static_cast<int16_t>(a.lane[i]); }
  SCALAR_WORD int32_t high(I32 a, int i) { return a.lane[i] >> 16; }
  SCALAR_WORD int32_t pair_of(int32_t even, int32_t odd) {
    return static_cast<int32_t>((static_cast<uint32_t>(even) & 0xffffu) | static_cast<uint32_t>(odd) << 16);
  }
};

}  // namespace quire
