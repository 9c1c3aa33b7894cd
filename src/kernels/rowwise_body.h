// The row-wise kernels of kernel_table.h over the words of an ISA.
//
// Fixed shape of a sum over n values: 64 partial sums, value i goes to partial sum i mod 64, ascending; these
// are added as four vectors of 16, (0 + 2) + (1 + 3), and then by W::reduce_add.
#pragma once

#include "core/model_spec.h"
#include "kernels/elementary_body.h"

namespace quire {

// W: the words of one ISA (simd_*.h). Stateless; any thread.
template <class W>
class RowwiseBody {
 public:
  static void rms_norm(const float* x, const float* w, float epsilon, int n, float* y) {
    const float mean = sum_of_squares(x, n) / static_cast<float>(n);
    const F32 r = W::set1(1.0f / __builtin_sqrtf(mean + epsilon));
    if (w == nullptr) {
      map(x, x, n, y, [r](F32 a, F32) { return W::mul(a, r); });
    } else {
      map(x, w, n, y, [r](F32 a, F32 b) { return W::mul(W::mul(a, r), b); });
    }
  }

  static void add(const float* x, int n, float* y) {
    map(x, y, n, y, [](F32 a, F32 b) { return W::add(a, b); });
  }

  static void rope(RopeSpec::Pairing pairing, int dims, const float* cos, const float* sin, float* head) {
    if (pairing == RopeSpec::Pairing::kHalves) {
      rope_halves(dims / 2, cos, sin, head);
    } else {
      rope_interleaved(dims / 2, cos, sin, head);
    }
  }

  static void gated(Activation activation, const float* gate, const float* up, int n, float* y) {
    if (activation == Activation::kSilu) {
      map(gate, up, n, y, [](F32 g, F32 u) { return W::mul(Elementary<W>::silu(g), u); });
    } else {
      map(gate, up, n, y, [](F32 g, F32 u) { return W::mul(Elementary<W>::gelu_tanh(g), u); });
    }
  }

  static void softcap(float cap, int n, float* x) {
    const F32 c = W::set1(cap);
    const F32 inverse = W::set1(1.0f / cap);
    map(x, x, n, x, [c, inverse](F32 a, F32) { return Elementary<W>::softcap(c, inverse, a); });
  }

 private:
  using F32 = typename W::F32;
  static constexpr int kLanes = W::kLanes;
  static_assert(kLanes == 16);

  // y[i] = f(a[i], b[i]); y may be a or b.
  template <class Function>
  static void map(const float* a, const float* b, int n, float* y, Function f) {
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) W::store(y + i, f(W::load(a + i), W::load(b + i)));
    const int rest = n - i;
    if (rest > 0) W::store_first(y + i, f(W::load_first(a + i, rest), W::load_first(b + i, rest)), rest);
  }

  static float sum_of_squares(const float* x, int n) {
    F32 part[4] = {W::zero(), W::zero(), W::zero(), W::zero()};
    int i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      for (int p = 0; p < 4; ++p) {
        const F32 v = W::load(x + i + p * kLanes);
        part[p] = W::fma(v, v, part[p]);
      }
    }
    for (int p = 0; i < n; i += kLanes, ++p) {
      const F32 v = n - i >= kLanes ? W::load(x + i) : W::load_first(x + i, n - i);
      part[p] = W::fma(v, v, part[p]);
    }
    return W::reduce_add(W::add(W::add(part[0], part[2]), W::add(part[1], part[3])));
  }

  // (a, b) -> (a cos - b sin, b cos + a sin); the product with sin is rounded by itself.
  static void rope_halves(int pairs, const float* cos, const float* sin, float* head) {
    int i = 0;
    for (; i + kLanes <= pairs; i += kLanes) {
      const F32 a = W::load(head + i);
      const F32 b = W::load(head + pairs + i);
      const F32 c = W::load(cos + i);
      const F32 s = W::load(sin + i);
      W::store(head + i, W::fma(a, c, W::sub(W::zero(), W::mul(b, s))));
      W::store(head + pairs + i, W::fma(b, c, W::mul(a, s)));
    }
    for (; i < pairs; ++i) rotate(cos[i], sin[i], head[i], head[pairs + i]);
  }

  static void rope_interleaved(int pairs, const float* cos, const float* sin, float* head) {
    for (int i = 0; i < pairs; ++i) rotate(cos[i], sin[i], head[2 * i], head[2 * i + 1]);
  }

  KERNEL_INLINE void rotate(float c, float s, float& first, float& second) {
    const float a = first;
    const float b = second;
    first = __builtin_fmaf(a, c, 0.0f - b * s);
    second = __builtin_fmaf(b, c, a * s);
  }
};

}  // namespace quire
