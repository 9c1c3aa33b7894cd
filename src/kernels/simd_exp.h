// exp of 16 lanes by range reduction and a polynomial, in words only: the same bits on every instruction set.
#pragma once

#include "kernels/simd_inline.h"

namespace quire {

// e^x with a relative error below 3e-7. Below about -87.3 the result is clamped to e^-87.3 (about 1.2e-38),
// above 88.3 to e^88.3; a NaN gives an unspecified finite value.
template <class W>
KERNEL_INLINE typename W::F32 exp_lanes(typename W::F32 x) {
  x = W::min(W::max(x, W::set1(-87.3f)), W::set1(88.3f));
  const auto n = W::round_even(W::mul(x, W::set1(1.44269504f)));
  auto r = W::fma(n, W::set1(-0.693145752f), x);  // ln 2 in two parts; the first has trailing zeros
  r = W::fma(n, W::set1(-1.42860677e-6f), r);
  auto p = W::set1(1.0f / 720);
  p = W::fma(p, r, W::set1(1.0f / 120));
  p = W::fma(p, r, W::set1(1.0f / 24));
  p = W::fma(p, r, W::set1(1.0f / 6));
  p = W::fma(p, r, W::set1(0.5f));
  p = W::fma(p, r, W::set1(1.0f));
  p = W::fma(p, r, W::set1(1.0f));
  return W::as_f32(W::add_i32(W::as_i32(p), W::shl_i32(W::to_i32(n), 23)));
}

}  // namespace quire
