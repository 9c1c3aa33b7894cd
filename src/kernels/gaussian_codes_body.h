// The codes of gaussian_codes.h over the words of an ISA.
#pragma once

#include "kernels/gaussian_codes.h"
#include "kernels/simd_inline.h"

namespace quire {

// W: the words of one ISA (simd_*.h). Stateless; any thread. Cost of encode: seven
// times the squared error of the row, 21 times that of a short one, more where the largest value stands out.
template <class W>
class GaussianCodes {
 public:
  using F32 = typename W::F32;
  using I32 = typename W::I32;

  // Chooses the scale whose levels lie closest to x [n], calls place(i, code) for each value and returns the
  // scale's byte. A code is the index of the magnitude, its complement for a negative value. With an infinity
  // or a NaN in x the scale is NaN; all codes are then 0.
  template <const GaussianLevels& levels, class Place>
  static uint8_t encode(const float* x, int n, Place place) {
    const uint8_t scale = closest_scale<levels>(x, n);
    const float size = scale_value(scale);
    const F32 inverse = W::set1(size > 0 ? 1.0f / size : 0.0f);  // of NaN: 0
    for (int i = 0; i < n; i += kLanes) {
      const int count = n - i < kLanes ? n - i : kLanes;
      const F32 part = W::load_first(x + i, count);
      F32 index = W::zero();
      const F32 magnitude = W::mul(absolute(part), inverse);
      for (int level = 0; level + 1 < levels.count; ++level) {
        index = W::add(index,
                       W::select_less(W::set1(middle<levels>(level)), magnitude, W::set1(1.0f), W::zero()));
      }
      const F32 complement = W::sub(W::set1(-1.0f), index);
      alignas(64) int8_t codes[kLanes];
      W::store_i8(codes, W::to_i32(W::select_less(part, W::zero(), complement, index)));
      for (int j = 0; j < count; ++j) place(i + j, size > 0 ? codes[j] : int8_t{0});
    }
    return scale;
  }

  // 16 scales of a byte each.
  KERNEL_INLINE F32 load_scales(const void* from) {
    const I32 bytes = W::load_u8(from);
    const F32 number = W::to_f32(bytes);
    const F32 value = W::as_f32(W::shl_i32(W::add_i32(bytes, W::set1_i32(kExponentOffset)), 20));
    const F32 finite = W::select_less(W::set1(kScaleMax), number, W::set1(__builtin_nanf("")), value);
    return W::select_less(number, W::set1(1.0f), W::zero(), finite);
  }

  // Codes of K of 16 tokens to bytes [dim][16]. 64 bytes of codes are 8 dimensions: two in each quarter, the
  // even one in the low nibbles; 16 bytes of signs go with them, a bit a dimension. What lies `ahead` bytes
  // behind the codes is prefetched. Reads whole 64 bytes; writes 8 dimensions at a time.
  static void unpack_keys(const std::byte* codes, const std::byte* signs, int dims, std::byte* out,
                          ptrdiff_t ahead) {
    const I32 even_bits = W::load_i32(kSignBits[0].data());
    const I32 odd_bits = W::load_i32(kSignBits[1].data());
    for (int d = 0; d < dims; d += 8, codes += 64, signs += 16, out += 8 * 16) {
      W::prefetch(ahead_of(codes, ahead));
      const I32 sign = W::repeat16(signs);
      const Nibbles both = nibbles_of(codes, kKeyBytes.bytes.data());
      W::store_quarters(out, 32,
                        W::xor_i32(both.low, W::equal_bytes(W::and_i32(sign, even_bits), even_bits)));
      W::store_quarters(out + 16, 32,
                        W::xor_i32(both.high, W::equal_bytes(W::and_i32(sign, odd_bits), odd_bits)));
    }
  }

  // Codes of V to bytes: each 16 become 32, low nibbles first. The same.
  static void unpack_values(const std::byte* codes, int bytes, std::byte* out, ptrdiff_t ahead) {
    for (; bytes >= 64; bytes -= 64, codes += 64, out += 128) {
      W::prefetch(ahead_of(codes, ahead));
      unpack_64_values(codes, out);
    }
    if (bytes == 0) return;
    alignas(64) std::byte last[64] = {};
    __builtin_memcpy(last, codes, static_cast<size_t>(bytes));
    unpack_64_values(last, out);
  }

 private:
  // Of each byte: which bit of the signs tells that it is negative.
  using SignBits = std::array<uint8_t, 64>;
  static constexpr SignBits sign_bits(int odd) {
    SignBits bits{};
    for (size_t i = 0; i < bits.size(); ++i)
      bits[i] = static_cast<uint8_t>(1u << (i / 16 * 2 + static_cast<size_t>(odd)));
    return bits;
  }
  alignas(64) static constexpr std::array<SignBits, 2> kSignBits = {sign_bits(0), sign_bits(1)};

  struct Nibbles {
    I32 low, high;
  };
  KERNEL_INLINE Nibbles nibbles_of(const std::byte* codes, const uint8_t* levels) {
    const I32 both = W::load_i32(codes);
    const I32 mask = W::set1_i32(0x0f0f0f0f);
    return {W::lookup(levels, W::and_i32(both, mask)),
            W::lookup(levels, W::and_i32(W::shr_i32(both, 4), mask))};
  }
  KERNEL_INLINE void unpack_64_values(const std::byte* codes, std::byte* out) {
    const Nibbles both = nibbles_of(codes, kValueBytes.bytes.data());
    W::store_quarters(out, 32, both.low);
    W::store_quarters(out + 16, 32, both.high);
  }
  KERNEL_INLINE const void* ahead_of(const std::byte* from, ptrdiff_t ahead) {
    return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(ahead));
  }

  static constexpr int kLanes = W::kLanes;
  // Makes of a scale's byte the upper bits of a float.
  static constexpr int kExponentOffset = 103 << 3;

  template <const GaussianLevels& levels>
  static constexpr float middle(int level) {
    return 0.5f * (levels.at(level) + levels.at(level + 1));
  }

  KERNEL_INLINE F32 absolute(F32 x) { return W::as_f32(W::and_i32(W::as_i32(x), W::set1_i32(0x7fffffff))); }

  static float scale_value(int scale) {
    if (scale == 0) return 0;
    if (scale > kScaleMax) return __builtin_nanf("");
    return __builtin_bit_cast(float, static_cast<uint32_t>(scale + kExponentOffset) << 20);
  }
  // The largest scale that is not above x >= 0, within 1 and 254.
  static int scale_below(float x) {
    const auto upper = static_cast<int>(__builtin_bit_cast(uint32_t, x) >> 20) - kExponentOffset;
    return upper < 1 ? 1 : upper > kScaleMax ? kScaleMax : upper;
  }

  struct Size {
    float mean;  // root of the mean square
    float largest;
    bool finite;
  };

  static Size size_of(const float* x, int n) {
    F32 squares = W::zero();
    F32 largest = W::zero();
    F32 check = W::zero();
    for (int i = 0; i < n; i += kLanes) {
      const F32 part = W::load_first(x + i, n - i < kLanes ? n - i : kLanes);
      squares = W::fma(part, part, squares);
      largest = W::max(largest, absolute(part));
      check = W::fma(part, W::zero(), check);  // 0 times an infinity or a NaN is NaN
    }
    return {__builtin_sqrtf(W::reduce_add(squares) / static_cast<float>(n)), W::reduce_max(largest),
            W::reduce_add(check) == 0.0f};
  }

  // Around the scale of a Gaussian as wide as the row, and up to the one whose levels reach all of it.
  template <const GaussianLevels& levels>
  static uint8_t closest_scale(const float* x, int n) {
    const Size size = size_of(x, n);
    if (!size.finite) return kScaleNan;
    if (size.largest == 0) return 0;
    const int middle = scale_below(size.mean / levels.deviation);
    const int reaching = scale_below(size.largest / levels.largest()) + 1;
    const int around = n <= 32 ? 10 : 3;  // the fewer values, the less like a Gaussian
    const int first = middle > around + 1 ? middle - around : 1;
    int last = middle + around > reaching ? middle + around : reaching;
    if (last > kScaleMax) last = kScaleMax;
    int best = first;
    float least = squared_error<levels>(x, n, scale_value(first));
    for (int scale = first + 1; scale <= last; ++scale) {
      const float error = squared_error<levels>(x, n, scale_value(scale));
      if (!(error < least)) continue;
      best = scale;
      least = error;
    }
    return static_cast<uint8_t>(best);
  }

  template <const GaussianLevels& levels>
  static float squared_error(const float* x, int n, float scale) {
    const F32 inverse = W::set1(1.0f / scale);
    const F32 minus_scale = W::set1(-scale);
    F32 sum = W::zero();
    for (int i = 0; i < n; i += kLanes) {
      const int count = n - i < kLanes ? n - i : kLanes;
      const F32 size = absolute(W::load_first(x + i, count));
      const F32 magnitude = W::mul(size, inverse);
      F32 nearest = W::set1(levels.least);
      for (int level = 0; level + 1 < levels.count; ++level) {
        const float gap = levels.at(level + 1) - levels.at(level);
        nearest = W::add(nearest,
                         W::select_less(W::set1(middle<levels>(level)), magnitude, W::set1(gap), W::zero()));
      }
      F32 error = W::fma(nearest, minus_scale, size);
      if (count < kLanes) error = W::select_first(count, error, W::zero());
      sum = W::fma(error, error, sum);
    }
    return W::reduce_add(sum);
  }
};

}  // namespace quire
