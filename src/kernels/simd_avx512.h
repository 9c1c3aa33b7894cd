// The words (see simd_scalar.h) for AVX-512 F, BW, DQ, VL and VNNI: a vector is one register.
// Only isa_avx512.cc and ceilings_avx512.cc may include this file.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/simd_inline.h"

namespace quire {

struct Avx512Words {
  static constexpr int kLanes = 16;
  static constexpr int kIntRows = 8;
  static constexpr int kFloatRows = 12;

  using F32 = __m512;
  using I32 = __m512i;
  using Bytes = __m512i;
  using Dot = __m512i;  // 32-bit lanes

  // --- float lanes ---
  KERNEL_INLINE F32 set1(float value) { return _mm512_set1_ps(value); }
  KERNEL_INLINE F32 zero() { return _mm512_setzero_ps(); }
  KERNEL_INLINE F32 load(const float* from) { return _mm512_loadu_ps(from); }
  KERNEL_INLINE void store(float* to, F32 a) { _mm512_storeu_ps(to, a); }
  KERNEL_INLINE F32 load_first(const float* from, int count) {
    return _mm512_maskz_loadu_ps(first_mask(count), from);
  }
  KERNEL_INLINE void store_first(float* to, F32 a, int count) {
    _mm512_mask_storeu_ps(to, first_mask(count), a);
  }
  KERNEL_INLINE F32 select_first(int count, F32 a, F32 b) {
    return _mm512_mask_blend_ps(first_mask(count), b, a);
  }
  KERNEL_INLINE F32 select_less(F32 x, F32 y, F32 a, F32 b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
  }
  KERNEL_INLINE F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
  KERNEL_INLINE F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
  KERNEL_INLINE F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
  KERNEL_INLINE F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
  KERNEL_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
  KERNEL_INLINE F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
  KERNEL_INLINE F32 min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
  KERNEL_INLINE F32 sqrt(F32 a) { return _mm512_sqrt_ps(a); }
  KERNEL_INLINE F32 round_even(F32 a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  KERNEL_INLINE float reduce_add(F32 a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  KERNEL_INLINE float reduce_max(F32 a) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  // --- 16-bit floats in memory ---
  KERNEL_INLINE F32 load_f16(const void* from) { return _mm512_cvtph_ps(load_256(from)); }
  KERNEL_INLINE void store_f16(void* to, F32 a) {
    _mm256_storeu_si256(static_cast<__m256i*>(to),
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  KERNEL_INLINE F32 load_bf16(const void* from) {
    return as_f32(shl_i32(_mm512_cvtepu16_epi32(load_256(from)), 16));
  }

  // --- integer lanes ---
  KERNEL_INLINE I32 set1_i32(int32_t value) { return _mm512_set1_epi32(value); }
  KERNEL_INLINE I32 load_i32(const void* from) { return _mm512_loadu_si512(from); }
  KERNEL_INLINE void store_i32(void* to, I32 a) { _mm512_storeu_si512(to, a); }
  KERNEL_INLINE I32 add_i32(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
  KERNEL_INLINE I32 sub_i32(I32 a, I32 b) { return _mm512_sub_epi32(a, b); }
  KERNEL_INLINE I32 mul_i32(I32 a, I32 b) { return _mm512_mullo_epi32(a, b); }
  KERNEL_INLINE I32 and_i32(I32 a, I32 b) { return _mm512_and_si512(a, b); }
  KERNEL_INLINE I32 or_i32(I32 a, I32 b) { return _mm512_or_si512(a, b); }
  KERNEL_INLINE I32 xor_i32(I32 a, I32 b) { return _mm512_xor_si512(a, b); }
  KERNEL_INLINE I32 shl_i32(I32 a, int count) { return _mm512_slli_epi32(a, static_cast<unsigned>(count)); }
  KERNEL_INLINE I32 shr_i32(I32 a, int count) { return _mm512_srli_epi32(a, static_cast<unsigned>(count)); }
  KERNEL_INLINE I32 max_i32(I32 a, I32 b) { return _mm512_max_epi32(a, b); }
  KERNEL_INLINE int32_t reduce_max_i32(I32 a) {
    const __m256i eight = _mm256_max_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
  }
  KERNEL_INLINE int32_t reduce_add_i32(I32 a) {
    const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
  }
  KERNEL_INLINE I32 to_i32(F32 a) { return _mm512_cvtps_epi32(a); }
  KERNEL_INLINE F32 to_f32(I32 a) { return _mm512_cvtepi32_ps(a); }
  KERNEL_INLINE F32 as_f32(I32 a) { return _mm512_castsi512_ps(a); }
  KERNEL_INLINE I32 as_i32(F32 a) { return _mm512_castps_si512(a); }
  KERNEL_INLINE void store_i8(int8_t* to, I32 a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(a));
  }
  KERNEL_INLINE I32 load_u8(const void* from) { return _mm512_cvtepu8_epi32(load_128(from)); }

  // --- weight codes ---
  KERNEL_INLINE Bytes broadcast4(const void* from) {
    int32_t quad;
    __builtin_memcpy(&quad, from, sizeof quad);
    return set1_i32(quad);
  }
  KERNEL_INLINE Bytes lookup(const uint8_t* table, Bytes nibbles) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_128(table)), nibbles);
  }
  KERNEL_INLINE Bytes repeat16(const void* from) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  }
  KERNEL_INLINE void store_quarters(void* to, size_t stride, Bytes a) {
    auto* out = static_cast<char*>(to);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_castsi512_si128(a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + stride), _mm512_extracti32x4_epi32(a, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * stride), _mm512_extracti32x4_epi32(a, 2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * stride), _mm512_extracti32x4_epi32(a, 3));
  }
  KERNEL_INLINE Bytes equal_bytes(Bytes a, Bytes b) { return _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(a, b)); }
  KERNEL_INLINE I32 load_pairs_s8(const void* from) { return _mm512_cvtepi8_epi16(load_256(from)); }
  KERNEL_INLINE I32 load_pairs_u8(const void* from) { return _mm512_cvtepu8_epi16(load_256(from)); }
  KERNEL_INLINE I32 pair_dot(I32 a, I32 b) { return _mm512_madd_epi16(a, b); }
  KERNEL_INLINE I32 pair_dot_add(I32 sum, I32 a, I32 b) { return _mm512_dpwssd_epi32(sum, a, b); }
  KERNEL_INLINE I32 high_bytes(Bytes a) { return _mm512_srli_epi16(a, 8); }

  // --- dots: vpdpbusd, exact in 32 bits for any codes ---
  static constexpr int dot_steps(int /*code_max*/) { return 8; }
  static constexpr int dot_planes(int /*code_max*/) { return 1; }
  KERNEL_INLINE Dot dot_start(Bytes codes, Bytes activations) {
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes, activations);
  }
  KERNEL_INLINE Dot dot(Dot sum, Bytes codes, Bytes activations) {
    sum = _mm512_dpbusd_epi32(sum, codes, activations);
    asm volatile("" : "+v"(sum));  // keeps the rows' chains side by side, as written
    return sum;
  }
  KERNEL_INLINE I32 dot_sum(Dot a) { return a; }
  KERNEL_INLINE I32 dot_scaled(Dot a, I32 scale) { return _mm512_mullo_epi32(a, scale); }
  KERNEL_INLINE I32 scale_low(I32 pairs) { return _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16); }
  KERNEL_INLINE I32 scale_high(I32 pairs) { return _mm512_srai_epi32(pairs, 16); }

  KERNEL_INLINE void prefetch(const void* from) { _mm_prefetch(static_cast<const char*>(from), _MM_HINT_T1); }

 private:
  KERNEL_INLINE __m128i load_128(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  }
  KERNEL_INLINE __m256i load_256(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  KERNEL_INLINE __mmask16 first_mask(int count) { return static_cast<__mmask16>((1u << count) - 1); }
};

}  // namespace quire
