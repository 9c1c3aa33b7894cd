// How a token's K and V become bytes of a block and are read back: the codecs of kv_layout.h over the words
// of an ISA.
//
// f32, f16 and bf16 are read where they lie; fp8, int8 and int4 are decoded on the way (kv_rows_body.h):
//   fp8   x = code * scale                     scale = largest |x| / 448, one for a token's K and one for V
//   int8  x = fma(code, scale, min)            scale = (largest - min) / 255, the same
//   int4  K: 5 bits, V: 4 bits, x = level(code) * scale, of gaussian_codes.h
// Scales of fp8 and int8 are float16, rounded up so that the codes reach everything; int8's minimum is
// rounded down. A row with an infinity or a NaN has NaN as its scale.
//
// int4 rotates first: K and q by the same Hadamard matrix, which leaves q·K as it is and spreads what some
// models put into a few dimensions; V too, and the output is rotated back.
#pragma once

#include <cstring>

#include "kernels/attention.h"
#include "kernels/gaussian_codes_body.h"
#include "kernels/half_float.h"
#include "kernels/kv_layout.h"

namespace quire {

// W: the words of one ISA (simd_*.h). Stateless; any thread.
template <class W>
class KvCodec {
 public:
  using F32 = typename W::F32;
  using I32 = typename W::I32;
  using Gaussian = GaussianCodes<W>;

  // Encodes one token. `slice`: of its block and KV head.
  static void write(const KvLayerView& kv, std::byte* slice, int slot, const float* key, const float* value) {
    switch (kv.type) {
      case KvType::kF32:
        return write_rows(kv, reinterpret_cast<float*>(slice), slot, key, value);
      case KvType::kF16:
        return write_rows(kv, reinterpret_cast<uint16_t*>(slice), slot, key, value);
      case KvType::kBF16:
        return write_rows(kv, reinterpret_cast<Bf16*>(slice), slot, key, value);
      case KvType::kFp8:
      case KvType::kInt8:
      case KvType::kInt4:
        break;
    }
    const KvLayout layout = kv_layout(kv.type, kv.block_tokens, kv.key_dim, kv.value_dim);
    float* x = attention_scratch(static_cast<size_t>(kv.key_dim > kv.value_dim ? kv.key_dim : kv.value_dim));
    std::memcpy(x, key, static_cast<size_t>(kv.key_dim) * sizeof(float));
    write_key(kv, layout, slice, slot, x);
    std::memcpy(x, value, static_cast<size_t>(kv.value_dim) * sizeof(float));
    write_value(kv, layout, slice, slot, x);
  }

  // Slots [begin, begin + count) of a block, count <= 16.
  struct Slots {
    const std::byte* slice;
    int begin;
    int count;
    ptrdiff_t ahead;  // what lies so many bytes further is prefetched
  };

  // V of some slots: out[token][stride], stride >= value_dim padded to 16.
  static void decode_values(const KvLayerView& kv, const KvLayout& layout, const Slots& slots, float* out,
                            size_t stride) {
    alignas(64) float scale[kKeyTile];
    alignas(64) float minimum[kKeyTile];
    value_scales(kv, slots.slice + layout.value_scales, slots, scale, minimum);
    for (int t = 0; t < slots.count; ++t, out += stride) {
      const std::byte* codes =
          slots.slice + layout.values + static_cast<size_t>(slots.begin + t) * layout.value_row_bytes;
      for (size_t at = 0; at < layout.value_row_bytes; at += 64) prefetch(codes + at, slots.ahead);
      const Scales lanes = {W::set1(scale[t]), W::set1(minimum[t])};
      if (kv.type == KvType::kInt4) {
        decode_nibbles(codes, kv.value_dim, lanes, out);
        continue;
      }
      for (int d = 0; d < kv.value_dim; d += kLanes) {
        const I32 code = load_codes(codes + d, kv.value_dim - d);
        W::store(out + d, kv.type == KvType::kInt8 ? decode<KvType::kInt8>(code, lanes)
                                                   : decode<KvType::kFp8>(code, lanes));
      }
    }
  }

  // --- what codes mean ---

  // A value is code * scale + min.
  struct Scales {
    F32 scale;
    F32 min;
  };

  // Of a tile of K.
  KERNEL_INLINE Scales key_scales(KvType type, const std::byte* from) {
    if (type != KvType::kInt4)
      return {W::load_f16(from), W::load_f16(from + (type == KvType::kInt8 ? 2 * kKeyTile : 0))};
    const F32 scale = Gaussian::load_scales(from);
    return {scale, W::mul(scale, W::set1(-kKeyBytes.middle))};
  }
  KERNEL_INLINE F32 spread(I32 code, const Scales& by) { return W::fma(W::to_f32(code), by.scale, by.min); }
  template <KvType type>
  KERNEL_INLINE F32 decode(I32 code, const Scales& by) {
    if constexpr (type == KvType::kFp8) return W::mul(e4m3(code), by.scale);
    return spread(code, by);
  }
  KERNEL_INLINE F32 e4m3(I32 code) {
    const I32 size = W::and_i32(code, W::set1_i32(0x7f));
    const I32 sign = W::shl_i32(W::and_i32(code, W::set1_i32(0x80)), 24);
    const F32 normal = W::as_f32(W::add_i32(W::shl_i32(size, 20), W::set1_i32(0x3c000000)));
    const F32 tiny = W::mul(W::to_f32(size), W::set1(0x1p-9f));
    const F32 value = W::select_less(W::to_f32(size), W::set1(8.0f), tiny, normal);
    return W::as_f32(W::or_i32(W::as_i32(value), sign));
  }

  // The scales of some slots, as floats; all others read as 0.
  static void value_scales(const KvLayerView& kv, const std::byte* scales, const Slots& slots, float* scale,
                           float* minimum) {
    alignas(64) std::byte near[2 * kKeyTile * 2] = {};
    const auto n = static_cast<size_t>(slots.count);
    const auto first = static_cast<size_t>(slots.begin);
    const auto tokens = static_cast<size_t>(kv.block_tokens);
    if (kv.type == KvType::kInt4) {
      std::memcpy(near, scales + first, n);
      const F32 lanes = Gaussian::load_scales(near);
      W::store(scale, lanes);
      W::store(minimum, W::mul(lanes, W::set1(-kValueBytes.middle)));
      return;
    }
    std::memcpy(near, scales + 2 * first, 2 * n);
    if (kv.type == KvType::kInt8) std::memcpy(near + 2 * kKeyTile, scales + 2 * tokens + 2 * first, 2 * n);
    W::store(scale, W::load_f16(near));
    W::store(minimum, W::load_f16(near + 2 * kKeyTile));
  }

  // Multiplies x [dims] by a symmetric Hadamard matrix, block by block, and by 2^-shift. Twice, with shifts
  // that add up to log2(kv_rotation), is the identity.
  static void rotate(float* x, int dims, int block, int shift) {
    for (float* end = x + dims; x < end; x += block) {
      for (int half = 1; half < block; half *= 2) {
        for (int i = 0; i < block; i += 2 * half) {
          for (int j = i; j < i + half; ++j) {
            const float a = x[j];
            const float b = x[j + half];
            x[j] = a + b;
            x[j + half] = a - b;
          }
        }
      }
      const float factor = 1.0f / static_cast<float>(1 << shift);
      for (int i = 0; i < block; ++i) x[i] *= factor;
    }
  }

  // The shifts of stored vectors, and of those that are multiplied with them.
  static int stored_shift(int block) { return __builtin_ctz(static_cast<unsigned>(block)) / 2; }
  static int other_shift(int block) {
    return __builtin_ctz(static_cast<unsigned>(block)) - stored_shift(block);
  }

 private:
  static constexpr int kLanes = W::kLanes;

  static int least(int a, int b) { return a < b ? a : b; }

  KERNEL_INLINE void prefetch(const void* from, ptrdiff_t ahead) {
    W::prefetch(
        reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(ahead)));
  }

  // --- writing: f32, f16, bf16 ---

  KERNEL_INLINE void encode(F32 value, float* p) { W::store(p, value); }
  KERNEL_INLINE void encode(F32 value, uint16_t* p) { W::store_f16(p, value); }
  KERNEL_INLINE void encode(F32 value, Bf16* p) {
    alignas(64) float lanes[kLanes];
    W::store(lanes, value);
    for (int i = 0; i < kLanes; ++i) p[i] = Bf16{f32_to_bf16(lanes[i])};
  }

  // place(i, code) for each of n values.
  template <class E, class Place>
  static void encode_each(const float* x, int n, Place place) {
    alignas(64) E codes[kLanes];
    for (int i = 0; i < n; i += kLanes) {
      const int count = least(kLanes, n - i);
      encode(W::load_first(x + i, count), codes);
      for (int j = 0; j < count; ++j) place(i + j, codes[j]);
    }
  }

  template <class E>
  static void write_rows(const KvLayerView& kv, E* slice, int slot, const float* key, const float* value) {
    const size_t tile = static_cast<size_t>(slot / kKeyTile) * kKeyTile;
    E* column = slice + tile * static_cast<size_t>(kv.key_dim) + slot % kKeyTile;
    encode_each<E>(key, kv.key_dim,
                   [column](int d, E code) { column[static_cast<size_t>(d) * kKeyTile] = code; });
    E* row = slice + kv_layout(kv.type, kv.block_tokens, kv.key_dim, kv.value_dim).values / sizeof(E) +
             static_cast<size_t>(slot) * static_cast<size_t>(kv.value_dim);
    encode_each<E>(value, kv.value_dim, [row](int d, E code) { row[d] = code; });
  }

  // --- writing: codes and scales ---

  static void write_key(const KvLayerView& kv, const KvLayout& layout, std::byte* slice, int slot, float* x) {
    std::byte* tile = slice + static_cast<size_t>(slot / kKeyTile) * layout.key_tile_bytes;
    std::byte* scales = tile + layout.key_scales;
    const auto lane = static_cast<size_t>(slot % kKeyTile);
    const int block = kv_rotation(kv.type, kv.key_dim);
    if (block > 1) rotate(x, kv.key_dim, block, stored_shift(block));
    if (kv.type == KvType::kInt4) {
      scales[lane] = std::byte{Gaussian::template encode<kKeyLevels>(x, kv.key_dim, [&](int d, int8_t code) {
        const auto dim = static_cast<size_t>(d);
        const bool negative = code < 0;
        put_nibble(tile + dim / 2 * kKeyTile + lane, dim % 2, static_cast<uint8_t>(negative ? ~code : code));
        put_bit(tile + layout.key_signs + dim / 8 * kKeyTile + lane, dim % 8, negative);
      })};
      return;
    }
    const Encoded by = encode_row(kv.type, x, kv.key_dim);
    put_scales(kv.type, scales, kKeyTile, lane, by);
    for (int d = 0; d < kv.key_dim; ++d) {
      tile[static_cast<size_t>(d) * kKeyTile + lane] = std::byte{encode_value(kv.type, x[d], by)};
    }
  }

  static void write_value(const KvLayerView& kv, const KvLayout& layout, std::byte* slice, int slot,
                          float* x) {
    std::byte* row = slice + layout.values + static_cast<size_t>(slot) * layout.value_row_bytes;
    std::byte* scales = slice + layout.value_scales;
    const int block = kv_rotation(kv.type, kv.value_dim);
    if (block > 1) rotate(x, kv.value_dim, block, stored_shift(block));
    if (kv.type == KvType::kInt4) {
      scales[slot] =
          std::byte{Gaussian::template encode<kValueLevels>(x, kv.value_dim, [&](int d, int8_t code) {
            const int half = nibble_half(kv.value_dim, d);
            const int within = d % (2 * kLanes);
            put_nibble(row + d / (2 * kLanes) * kLanes + within % half, within >= half,
                       static_cast<uint8_t>(code + kValueLevels.count));
          })};
      return;
    }
    const Encoded by = encode_row(kv.type, x, kv.value_dim);
    put_scales(kv.type, scales, static_cast<size_t>(kv.block_tokens), static_cast<size_t>(slot), by);
    for (int d = 0; d < kv.value_dim; ++d) row[d] = std::byte{encode_value(kv.type, x[d], by)};
  }

  // 32 values of V are 16 bytes, their first half in the low nibbles; what is left at the end is split in the
  // same way.
  static int nibble_half(int dims, int d) {
    const int chunk = d / (2 * kLanes) * 2 * kLanes;
    return (least(2 * kLanes, dims - chunk) + 1) / 2;
  }

  // The low nibble is written first and clears the high one.
  static void put_nibble(std::byte* to, size_t high, uint8_t code) {
    *to = high != 0 ? *to | std::byte{static_cast<uint8_t>(code << 4)} : std::byte{code};
  }

  // The same of a byte's lowest bit.
  static void put_bit(std::byte* to, size_t bit, bool set) {
    const std::byte before = bit == 0 ? std::byte{0} : *to;
    *to = before | std::byte{static_cast<uint8_t>(set ? 1u << bit : 0u)};
  }

  // How a row's values become codes: round((x - min) * inverse).
  struct Encoded {
    uint16_t scale;   // float16
    uint16_t second;  // int8: the minimum, float16
    float min;
    float inverse;
  };

  static constexpr uint16_t kF16Nan = 0x7e00;
  static constexpr float kF16Max = 65504.0f;

  // The nearest float16 that is not below x, not above 65504.
  static uint16_t f16_up(float x) {
    if (!(x < kF16Max)) return 0x7bff;
    if (x < -kF16Max) return 0xfbff;
    const uint16_t nearest = f32_to_f16(x);
    if (f16_to_f32(nearest) >= x) return nearest;
    return (nearest & 0x8000u) == 0 ? static_cast<uint16_t>(nearest + 1) : static_cast<uint16_t>(nearest - 1);
  }
  static uint16_t f16_down(float x) { return static_cast<uint16_t>(f16_up(-x) ^ 0x8000u); }

  static Encoded encode_row(KvType type, const float* x, int n) {
    float low = x[0];
    float high = x[0];
    float check = 0;
    for (int i = 0; i < n; ++i) {
      low = x[i] < low ? x[i] : low;
      high = x[i] > high ? x[i] : high;
      check += x[i] * 0.0f;
    }
    if (check != 0) return {kF16Nan, 0, 0, 0};  // 0 times an infinity or a NaN
    Encoded by{};
    if (type == KvType::kFp8) {
      by.scale = f16_up((high > -low ? high : -low) * (1.0f / 448.0f));
    } else {
      by.second = f16_down(low);
      by.min = f16_to_f32(by.second);
      by.scale = f16_up((high - by.min) * (1.0f / 255.0f));
    }
    const float scale = f16_to_f32(by.scale);
    by.inverse = scale > 0 ? 1.0f / scale : 0.0f;
    return by;
  }

  // Rounded to nearest even.
  static int clamped(float x, int most) {
    const float limited = x > 0 ? (x < static_cast<float>(most) ? x : static_cast<float>(most)) : 0.0f;
    return static_cast<int>(__builtin_nearbyintf(limited));
  }

  static uint8_t encode_value(KvType type, float x, const Encoded& by) {
    if (by.scale == kF16Nan) return 0;
    if (type == KvType::kFp8) return to_e4m3(x * by.inverse);
    return static_cast<uint8_t>(clamped((x - by.min) * by.inverse, 255));
  }

  // `lanes` tokens' scales, then their second numbers.
  static void put_scales(KvType type, std::byte* scales, size_t lanes, size_t lane, const Encoded& by) {
    std::memcpy(scales + 2 * lane, &by.scale, 2);
    if (type == KvType::kInt8) std::memcpy(scales + 2 * lanes + 2 * lane, &by.second, 2);
  }

  // --- 8-bit floats: sign, 4 bits of exponent (bias 7), 3 of mantissa; largest 448, no infinity ---

  static uint8_t to_e4m3(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = bits >> 24 & 0x80u;
    const float size = std::bit_cast<float>(bits & 0x7fffffffu);
    if (size >= 448.0f) return static_cast<uint8_t>(sign | 0x7eu);
    if (size < 0x1p-6f) return static_cast<uint8_t>(sign | static_cast<uint32_t>(clamped(size * 512.0f, 8)));
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
    return static_cast<uint8_t>(sign | ((rounded - 0x3c000000u) >> 20));
  }

  // --- reading ---

  // 16 codes of which the first `count` are there.
  KERNEL_INLINE I32 load_codes(const std::byte* codes, int count) {
    if (count >= kLanes) return W::load_u8(codes);
    std::byte near[kLanes] = {};
    std::memcpy(near, codes, static_cast<size_t>(count));
    return W::load_u8(near);
  }

  static void decode_nibbles(const std::byte* codes, int dims, const Scales& by, float* out) {
    for (int d = 0; d < dims; ++d) {
      const int half = nibble_half(dims, d);
      const int within = d % (2 * kLanes);
      const auto both = static_cast<unsigned>(codes[d / (2 * kLanes) * kLanes + within % half]);
      const uint8_t byte = kValueBytes.bytes[within < half ? both & 15u : both >> 4];
      out[d] = __builtin_fmaf(static_cast<float>(byte), first_lane(by.scale), first_lane(by.min));
    }
    for (int i = dims; i % kLanes != 0; ++i) out[i] = 0;
  }
  static float first_lane(F32 value) {
    alignas(64) float lanes[kLanes];
    W::store(lanes, value);
    return lanes[0];
  }
};

}  // namespace quire
