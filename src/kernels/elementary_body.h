// exp and tanh as polynomials in words only: the same operations in the same order everywhere, so that all
// ISAs agree bit for bit. Coefficients: minimax fits (Remez exchange) made for this file.
#pragma once

#include "kernels/simd_inline.h"

namespace quire {

// W: the words of one ISA (simd_*.h). Stateless.
template <class W>
struct Elementary {
  using F32 = typename W::F32;

  // e^x within 1.5 units in the last place. 0 below -87.33 (where float32 leaves its normal range), e^88.37
  // above 88.37, NaN for NaN. exp(0) is exactly 1.
  KERNEL_INLINE F32 exp(F32 x) {
    const F32 low = W::set1(-87.33f);
    const F32 clamped = W::min(W::set1(88.37f), W::max(low, x));  // this order of operands lets NaN through
    // Adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the low bits.
    const F32 magic = W::set1(12582912.0f);
    const F32 shifted = W::fma(clamped, W::set1(1.44269504088896341f), magic);
    const F32 n = W::sub(shifted, magic);
    F32 r = W::fma(n, W::set1(-0.693359375f), clamped);  // ln 2 in two parts; the first times n is exact
    r = W::fma(n, W::set1(2.12194440054690583e-4f), r);
    F32 p = W::fma(r, W::set1(0.0013814540087344848f), W::set1(0.008368745107529559f));
    p = W::fma(p, r, W::set1(0.041668390785350465f));
    p = W::fma(p, r, W::set1(0.1666652039905801f));
    p = W::fma(p, r, W::set1(0.4999999343212038f));
    p = W::fma(W::mul(r, r), p, r);
    p = W::add(p, W::set1(1.0f));
    const F32 y = W::as_f32(W::add_i32(W::as_i32(p), W::shl_i32(W::as_i32(shifted), 23)));
    return W::select_less(x, low, W::zero(), y);
  }

  // tanh x; relative error below 4e-7 everywhere, also next to 0.
  KERNEL_INLINE F32 tanh(F32 x) {
    const F32 one = W::set1(1.0f);
    const F32 size = W::max(x, W::sub(W::zero(), x));
    const F32 z = W::mul(x, x);
    F32 p = W::fma(z, W::set1(-0.005716290494473907f), W::set1(0.020649943331649025f));
    p = W::fma(p, z, W::set1(-0.053743311175420694f));
    p = W::fma(p, z, W::set1(0.1333148918588973f));
    p = W::fma(p, z, W::set1(-0.3333328385355198f));
    const F32 near = W::fma(W::mul(p, z), x, x);
    const F32 e = exp(W::mul(size, W::set1(-2.0f)));
    const F32 far = W::div(W::sub(one, e), W::add(one, e));
    const F32 far_signed = W::select_less(x, W::zero(), W::sub(W::zero(), far), far);
    return W::select_less(size, W::set1(0.625f), near, far_signed);
  }

  // cap * tanh(x / cap); inverse_cap = 1 / cap.
  KERNEL_INLINE F32 softcap(F32 cap, F32 inverse_cap, F32 x) {
    return W::mul(cap, tanh(W::mul(x, inverse_cap)));
  }

  // x / (1 + e^-x): SiLU (Elfwing et al. 2017).
  KERNEL_INLINE F32 silu(F32 x) { return W::div(x, W::add(W::set1(1.0f), exp(W::sub(W::zero(), x)))); }

  // GELU, tanh form (Hendrycks & Gimpel 2016): x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x³), which
  // is x / (1 + e^-2u).
  KERNEL_INLINE F32 gelu_tanh(F32 x) {
    const F32 cubic = W::fma(W::mul(x, x), W::set1(0.044715f), W::set1(1.0f));
    const F32 minus_2u = W::mul(W::mul(W::set1(-1.5957691216057308f), x), cubic);
    return W::div(x, W::add(W::set1(1.0f), exp(minus_2u)));
  }
};

}  // namespace quire
