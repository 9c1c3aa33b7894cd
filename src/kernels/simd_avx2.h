// The words (see simd_scalar.h) for AVX2 + FMA + F16C: a vector is two registers, lanes 0 … 7 and 8 … 15.
// Only isa_avx2.cc and ceilings_avx2.cc may include this file.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/simd_inline.h"

namespace quire {

struct Avx2Words {
  static constexpr int kLanes = 16;
  static constexpr int kIntRows = 3;  // 6 dots and 6 accumulators leave 4 registers for operands
  static constexpr int kFloatRows = 6;

  struct F32 {
    __m256 lo, hi;
  };
  struct I32 {
    __m256i lo, hi;
  };
  using Bytes = I32;
  using Dot = I32;  // 16-bit lanes, two per output

  // --- float lanes ---
  KERNEL_INLINE F32 set1(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  KERNEL_INLINE F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  KERNEL_INLINE F32 load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  KERNEL_INLINE void store(float* to, F32 a) {
    _mm256_storeu_ps(to, a.lo);
    _mm256_storeu_ps(to + 8, a.hi);
  }
  KERNEL_INLINE F32 load_first(const float* from, int count) {
    const I32 mask = first_mask(count);
    return {_mm256_maskload_ps(from, mask.lo), _mm256_maskload_ps(from + 8, mask.hi)};
  }
  KERNEL_INLINE void store_first(float* to, F32 a, int count) {
    const I32 mask = first_mask(count);
    _mm256_maskstore_ps(to, mask.lo, a.lo);
    _mm256_maskstore_ps(to + 8, mask.hi, a.hi);
  }
  KERNEL_INLINE F32 select_first(int count, F32 a, F32 b) {
    const F32 mask = as_f32(first_mask(count));
    return {_mm256_blendv_ps(b.lo, a.lo, mask.lo), _mm256_blendv_ps(b.hi, a.hi, mask.hi)};
  }
  KERNEL_INLINE F32 add(F32 a, F32 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  KERNEL_INLINE F32 sub(F32 a, F32 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  KERNEL_INLINE F32 mul(F32 a, F32 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  KERNEL_INLINE F32 div(F32 a, F32 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  KERNEL_INLINE F32 fma(F32 a, F32 b, F32 c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  KERNEL_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  KERNEL_INLINE F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  KERNEL_INLINE F32 sqrt(F32 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
  KERNEL_INLINE F32 round_even(F32 a) {
    return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  KERNEL_INLINE F32 select_less(F32 a, F32 b, F32 x, F32 y) {
    return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
            _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
  }
  KERNEL_INLINE float reduce_add(F32 a) {
    const __m256 eight = _mm256_add_ps(a.lo, a.hi);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  KERNEL_INLINE float reduce_max(F32 a) {
    const __m256 eight = _mm256_max_ps(a.lo, a.hi);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  // --- 16-bit floats in memory ---
  KERNEL_INLINE F32 load_f16(const void* from) {
    return {_mm256_cvtph_ps(half(from, 0)), _mm256_cvtph_ps(half(from, 1))};
  }
  KERNEL_INLINE void store_f16(void* to, F32 a) {
    auto* out = static_cast<__m128i*>(to);
    _mm_storeu_si128(out, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(out + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
  }
  KERNEL_INLINE F32 load_bf16(const void* from) {
    return as_f32(shl_i32({_mm256_cvtepu16_epi32(half(from, 0)), _mm256_cvtepu16_epi32(half(from, 1))}, 16));
  }

  // --- integer lanes ---
  KERNEL_INLINE I32 set1_i32(int32_t value) { return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)}; }
  KERNEL_INLINE I32 load_i32(const void* from) {
    const auto* in = static_cast<const __m256i*>(from);
    return {_mm256_loadu_si256(in), _mm256_loadu_si256(in + 1)};
  }
  KERNEL_INLINE void store_i32(void* to, I32 a) {
    auto* out = static_cast<__m256i*>(to);
    _mm256_storeu_si256(out, a.lo);
    _mm256_storeu_si256(out + 1, a.hi);
  }
  KERNEL_INLINE I32 add_i32(I32 a, I32 b) {
    return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
  }
  KERNEL_INLINE I32 sub_i32(I32 a, I32 b) {
    return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
  }
  KERNEL_INLINE I32 mul_i32(I32 a, I32 b) {
    return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
  }
  KERNEL_INLINE I32 and_i32(I32 a, I32 b) {
    return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
  }
  KERNEL_INLINE I32 or_i32(I32 a, I32 b) {
    return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
  }
  KERNEL_INLINE I32 xor_i32(I32 a, I32 b) {
    return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
  }
  KERNEL_INLINE I32 shl_i32(I32 a, int count) {
    return {_mm256_slli_epi32(a.lo, count), _mm256_slli_epi32(a.hi, count)};
  }
  KERNEL_INLINE I32 shr_i32(I32 a, int count) {
    return {_mm256_srli_epi32(a.lo, count), _mm256_srli_epi32(a.hi, count)};
  }
  KERNEL_INLINE I32 max_i32(I32 a, I32 b) {
    return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
  }
  KERNEL_INLINE int32_t reduce_max_i32(I32 a) {
    const __m256i eight = _mm256_max_epi32(a.lo, a.hi);
    const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
  }
  KERNEL_INLINE int32_t reduce_add_i32(I32 a) {
    const __m256i eight = _mm256_add_epi32(a.lo, a.hi);
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
  }
  KERNEL_INLINE I32 to_i32(F32 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
  KERNEL_INLINE F32 to_f32(I32 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
  KERNEL_INLINE F32 as_f32(I32 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
  KERNEL_INLINE I32 as_i32(F32 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
  KERNEL_INLINE void store_i8(int8_t* to, I32 a) {
    // packs works within 128-bit halves; the permutation puts the lanes in order again.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
  }
  KERNEL_INLINE I32 load_u8(const void* from) {
    const __m128i bytes = half(from, 0);
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }

  // --- weight codes ---
  KERNEL_INLINE Bytes broadcast4(const void* from) {
    int32_t quad;
    __builtin_memcpy(&quad, from, sizeof quad);
    return set1_i32(quad);
  }
  KERNEL_INLINE Bytes lookup(const uint8_t* table, Bytes nibbles) {
    const __m256i both = _mm256_broadcastsi128_si256(half(table, 0));
    return {_mm256_shuffle_epi8(both, nibbles.lo), _mm256_shuffle_epi8(both, nibbles.hi)};
  }
  KERNEL_INLINE Bytes repeat16(const void* from) {
    const __m256i both = _mm256_broadcastsi128_si256(half(from, 0));
    return {both, both};
  }
  KERNEL_INLINE void store_quarters(void* to, size_t stride, Bytes a) {
    auto* out = static_cast<char*>(to);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(a.lo));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + stride), _mm256_extracti128_si256(a.lo, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * stride), _mm256_castsi256_si128(a.hi));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * stride), _mm256_extracti128_si256(a.hi, 1));
  }
  KERNEL_INLINE Bytes equal_bytes(Bytes a, Bytes b) {
    return {_mm256_cmpeq_epi8(a.lo, b.lo), _mm256_cmpeq_epi8(a.hi, b.hi)};
  }
  KERNEL_INLINE I32 load_pairs_s8(const void* from) {
    return {_mm256_cvtepi8_epi16(half(from, 0)), _mm256_cvtepi8_epi16(half(from, 1))};
  }
  KERNEL_INLINE I32 load_pairs_u8(const void* from) {
    return {_mm256_cvtepu8_epi16(half(from, 0)), _mm256_cvtepu8_epi16(half(from, 1))};
  }
  KERNEL_INLINE I32 pair_dot(I32 a, I32 b) {
    return {_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
  }
  KERNEL_INLINE I32 pair_dot_add(I32 sum, I32 a, I32 b) {
    sum = add_i32(sum, pair_dot(a, b));
    asm volatile("" : "+x"(sum.lo), "+x"(sum.hi));  // as in dot()
    return sum;
  }
  KERNEL_INLINE I32 high_bytes(Bytes a) { return {_mm256_srli_epi16(a.lo, 8), _mm256_srli_epi16(a.hi, 8)}; }

  // --- dots: vpmaddubsw, added up in 16 bits as long as that is exact ---
  static constexpr int dot_steps(int code_max) {
    const int exact = 32767 / (2 * code_max * 127);
    return exact >= 8 ? 8 : exact >= 4 ? 4 : exact >= 2 ? 2 : 1;
  }
  static constexpr int dot_planes(int code_max) { return 2 * code_max * 127 > 32767 ? 2 : 1; }
  KERNEL_INLINE Dot dot_start(Bytes codes, Bytes activations) {
    return {_mm256_maddubs_epi16(codes.lo, activations.lo), _mm256_maddubs_epi16(codes.hi, activations.hi)};
  }
  KERNEL_INLINE Dot dot(Dot sum, Bytes codes, Bytes activations) {
    const Dot product = dot_start(codes, activations);
    sum = {_mm256_add_epi16(sum.lo, product.lo), _mm256_add_epi16(sum.hi, product.hi)};
    // Keeps the compiler from making trees of these chains, which would need more registers than there are.
    asm volatile("" : "+x"(sum.lo), "+x"(sum.hi));
    return sum;
  }
  KERNEL_INLINE I32 dot_sum(Dot a) { return pair_dot(a, {_mm256_set1_epi16(1), _mm256_set1_epi16(1)}); }
  KERNEL_INLINE I32 dot_scaled(Dot a, I32 scale) { return pair_dot(a, scale); }
  KERNEL_INLINE I32 scale_low(I32 pairs) { return shuffle(pairs, 0x0d0c0d0c'09080908, 0x05040504'01000100); }
  KERNEL_INLINE I32 scale_high(I32 pairs) { return shuffle(pairs, 0x0f0e0f0e'0b0a0b0a, 0x07060706'03020302); }

  KERNEL_INLINE void prefetch(const void* from) { _mm_prefetch(static_cast<const char*>(from), _MM_HINT_T1); }

 private:
  KERNEL_INLINE __m128i half(const void* from, int index) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from) + index);
  }
  KERNEL_INLINE I32 shuffle(I32 a, int64_t high, int64_t low) {
    const __m256i order = _mm256_set_epi64x(high, low, high, low);
    return {_mm256_shuffle_epi8(a.lo, order), _mm256_shuffle_epi8(a.hi, order)};
  }
  KERNEL_INLINE I32 first_mask(int count) {
    const __m256i limit = _mm256_set1_epi32(count);
    return {_mm256_cmpgt_epi32(limit, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            _mm256_cmpgt_epi32(limit, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
  }
};

}  // namespace quire
