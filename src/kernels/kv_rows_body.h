// Rows of K and V as the products of attention read them: where they lie in a block, decoded in registers.
//
// A source has `rows` rows of 16 lanes, or of 32 in two halves: those of K are dimensions and its lanes
// tokens, those of V are tokens and its lanes dimensions. load(k, half) is a vector of row k; fetch(k, half)
// prefetches what lies `ahead` bytes behind it. k mod kPhases is known at compile time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/half_float.h"
#include "kernels/kv_codec_body.h"

namespace quire {

template <class W>
class KvRows {
 public:
  using F32 = typename W::F32;
  using I32 = typename W::I32;
  using Codec = KvCodec<W>;

  // Row k at data + k * stride, its second half `half_stride` further. E: float, Bf16, or uint16_t for
  // float16.
  template <class E>
  struct Plain {
    static constexpr int kPhases = 1;
    const E* data;
    size_t stride;
    size_t half_stride;
    int rows;
    ptrdiff_t ahead;

    [[nodiscard]] Plain half(int index) const {
      return {data + static_cast<size_t>(index) * half_stride, stride, 0, rows, ahead};
    }
    template <int phase>
    [[gnu::always_inline]] F32 load(size_t k, int half) const {
      return load_row(at(k, half));
    }
    template <int phase>
    [[gnu::always_inline]] void fetch(size_t k, int half) const {
      prefetch(at(k, half), ahead);
    }

   private:
    [[gnu::always_inline]] const E* at(size_t k, int half) const {
      return data + k * stride + static_cast<size_t>(half) * half_stride;
    }
  };

  // One or two tiles of K: bytes [dim][16 tokens]. type: kFp8, or kInt8, which int4 is once it is unpacked.
  template <KvType type>
  struct Keys {
    static constexpr int kPhases = 4;  // a cache line
    const std::byte* codes;
    size_t half_stride;
    int rows;
    ptrdiff_t ahead;
    typename Codec::Scales scales[2];

    [[nodiscard]] Keys half(int index) const {
      Keys one = *this;
      one.codes += static_cast<size_t>(index) * half_stride;
      one.scales[0] = scales[index];
      return one;
    }
    template <int phase>
    [[gnu::always_inline]] F32 load(size_t k, int half) const {
      return Codec::template decode<type>(W::load_u8(at(k, half)), scales[half]);
    }
    template <int phase>
    [[gnu::always_inline]] void fetch(size_t k, int half) const {
      if constexpr (phase == 0) prefetch(at(k, half), ahead);
    }

   private:
    [[gnu::always_inline]] const std::byte* at(size_t k, int half) const {
      return codes + static_cast<size_t>(half) * half_stride + k * kKeyTile;
    }
  };

  // Some dimensions of some tokens' V, a byte each.
  template <KvType type>
  struct Values {
    static constexpr int kPhases = 1;
    const std::byte* codes;
    size_t stride;
    const float* scale;  // [row]
    const float* min;
    int rows;
    ptrdiff_t ahead;

    template <int phase>
    [[gnu::always_inline]] F32 load(size_t k, int half) const {
      const std::byte* row = codes + k * stride + static_cast<size_t>(half) * W::kLanes;
      return Codec::template decode<type>(W::load_u8(row), {W::set1(scale[k]), W::set1(min[k])});
    }
    template <int phase>
    [[gnu::always_inline]] void fetch(size_t k, int half) const {
      if (half == 0) prefetch(codes + k * stride, ahead);
    }
  };

  KERNEL_INLINE F32 load_row(const float* p) { return W::load(p); }
  KERNEL_INLINE F32 load_row(const uint16_t* p) { return W::load_f16(p); }
  KERNEL_INLINE F32 load_row(const Bf16* p) { return W::load_bf16(p); }

 private:
  // The address may lie outside of what is mapped: it is never read.
  KERNEL_INLINE void prefetch(const void* from, ptrdiff_t ahead) {
    W::prefetch(
        reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(ahead)));
  }
};

}  // namespace quire
