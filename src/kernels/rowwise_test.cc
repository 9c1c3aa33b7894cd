#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "kernels/elementary_body.h"
#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/kernel_table.h"
#include "kernels/simd_scalar.h"

namespace quire {
namespace {

constexpr double kUnit = 0x1p-24;  // a correctly rounded operation's relative error

const int kLengths[] = {1, 2, 3, 7, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 127, 128, 576, 896, 1001};

void fill(const GuardedBuffer<float>& buffer, uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  for (float& x : buffer.span()) x = normal(random);
}

void expect_same_bits(std::span<const float> a, std::span<const float> b, std::string_view what, int n) {
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0) << what << " n=" << n;
}

// Runs `f(table, x, w, y)` for every table; returns the scalar result, which the others must equal.
template <class Function>
std::vector<float> run_all(int n, float spread, Function f) {
  const auto count = static_cast<size_t>(n);
  const GuardedBuffer<float> x(count), w(count), y(count);
  std::vector<float> reference;
  for (const KernelTable* table : all_tested_kernels()) {
    fill(x, static_cast<uint32_t>(n), spread);
    fill(w, static_cast<uint32_t>(n) + 1, 1.0f);
    std::memset(y.data(), 0, count * sizeof(float));
    f(*table, x.data(), w.data(), y.data());
    if (reference.empty()) reference.assign(y.data(), y.data() + n);
    expect_same_bits(y.span(), reference, table->name, n);
  }
  return reference;
}

// The same inputs as run_all.
struct Inputs {
  explicit Inputs(int n, float spread) : x(static_cast<size_t>(n)), w(static_cast<size_t>(n)) {
    fill(x, static_cast<uint32_t>(n), spread);
    fill(w, static_cast<uint32_t>(n) + 1, 1.0f);
  }
  GuardedBuffer<float> x, w;
};

TEST(RmsNorm, AgreesWithDouble) {
  for (int n : kLengths) {
    for (bool weighted : {true, false}) {
      const std::vector<float> y =
          run_all(n, 3.0f, [&](const KernelTable& k, float* x, float* w, float* out) {
            k.rms_norm(x, weighted ? w : nullptr, 1e-5f, n, out);
          });
      const Inputs in(n, 3.0f);
      double squares = 0;
      for (int i = 0; i < n; ++i) squares += static_cast<double>(in.x[i]) * in.x[i];
      const double r = 1 / std::sqrt(squares / n + 1e-5f);
      for (int i = 0; i < n; ++i) {
        const double expected = in.x[i] * r * (weighted ? in.w[i] : 1.0f);
        // Half of the sum's error (n / 64 + 7 roundings, division, epsilon), root, reciprocal, two products.
        const double bound = (0.5 * (n / 64 + 10) + 5) * kUnit * std::abs(expected);
        EXPECT_NEAR(y[static_cast<size_t>(i)], expected, bound) << n;
      }
    }
  }
}

TEST(RmsNorm, MayWorkInPlace) {
  const std::vector<float> apart = run_all(
      100, 1.0f, [](const KernelTable& k, float* x, float* w, float* y) { k.rms_norm(x, w, 1e-6f, 100, y); });
  const std::vector<float> in_place =
      run_all(100, 1.0f, [](const KernelTable& k, float* x, float* w, float* y) {
        k.rms_norm(x, w, 1e-6f, 100, x);
        std::memcpy(y, x, 100 * sizeof(float));
      });
  expect_same_bits(apart, in_place, "in place", 100);
}

TEST(Add, AddsOnce) {
  for (int n : kLengths) {
    const std::vector<float> y = run_all(n, 1.0f, [&](const KernelTable& k, float* x, float* w, float* out) {
      std::memcpy(out, w, static_cast<size_t>(n) * sizeof(float));
      k.add(x, n, out);
    });
    const Inputs in(n, 1.0f);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], in.x[i] + in.w[i]);
  }
}

TEST(Rope, RotatesThePairs) {
  for (RopeSpec::Pairing pairing : {RopeSpec::Pairing::kHalves, RopeSpec::Pairing::kInterleaved}) {
    for (int pairs : {0, 1, 3, 16, 20, 32, 33, 64}) {
      const int n = 2 * pairs + 5;  // what follows the rotated dimensions stays
      const std::vector<float> y =
          run_all(n, 2.0f, [&](const KernelTable& k, float* x, float* w, float* out) {
            std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
            k.rope(pairing, 2 * pairs, w, w + pairs, out);
          });
      const Inputs in(n, 2.0f);
      const bool halves = pairing == RopeSpec::Pairing::kHalves;
      for (int i = 0; i < pairs; ++i) {
        const int first = halves ? i : 2 * i;
        const int second = halves ? i + pairs : 2 * i + 1;
        const double a = in.x[first], b = in.x[second], c = in.w[i], s = in.w[i + pairs];
        EXPECT_NEAR(y[static_cast<size_t>(first)], a * c - b * s,
                    2 * kUnit * (std::abs(a * c) + std::abs(b * s)));
        EXPECT_NEAR(y[static_cast<size_t>(second)], b * c + a * s,
                    2 * kUnit * (std::abs(b * c) + std::abs(a * s)));
      }
      for (int i = 2 * pairs; i < n; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], in.x[i]);
    }
  }
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}
// 1 + tanh u is 2 / (1 + e^-2u) without the cancellation.
double gelu_tanh(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

TEST(Gated, AgreesWithDouble) {
  for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    for (int n : kLengths) {
      for (float spread : {0.01f, 1.0f, 8.0f, 100.0f}) {
        const std::vector<float> y = run_all(
            n, spread,
            [&](const KernelTable& k, float* x, float* w, float* out) { k.gated(activation, x, w, n, out); });
        const Inputs in(n, spread);
        for (int i = 0; i < n; ++i) {
          const double x = in.x[i];
          const double expected = (activation == Activation::kSilu ? silu(x) : gelu_tanh(x)) * in.w[i];
          // e^u carries 1.5 + 1 units and the error of its argument, at most 4 roundings of |u|. Beyond
          // e^88 the denominator is capped: what is left is below 1e-35.
          const double u = std::min(
              90.0, activation == Activation::kSilu ? std::abs(x) : 1.6 * std::abs(x + 0.045 * x * x * x));
          const double bound = (8 + 4 * u) * kUnit * std::abs(expected) + 1e-35;
          EXPECT_NEAR(y[static_cast<size_t>(i)], expected, bound) << x;
        }
      }
    }
  }
}

TEST(Gated, MayOverwriteTheGate) {
  const std::vector<float> apart = run_all(77, 1.0f, [](const KernelTable& k, float* x, float* w, float* y) {
    k.gated(Activation::kSilu, x, w, 77, y);
  });
  const std::vector<float> in_place =
      run_all(77, 1.0f, [](const KernelTable& k, float* x, float* w, float* y) {
        k.gated(Activation::kSilu, x, w, 77, x);
        std::memcpy(y, x, 77 * sizeof(float));
      });
  expect_same_bits(apart, in_place, "in place", 77);
}

TEST(Softcap, AgreesWithDouble) {
  for (int n : kLengths) {
    for (float spread : {1e-6f, 1.0f, 30.0f, 1000.0f}) {
      const std::vector<float> y =
          run_all(n, spread, [&](const KernelTable& k, float* x, float*, float* out) {
            k.softcap(30.0f, n, x);
            std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
          });
      const Inputs in(n, spread);
      for (int i = 0; i < n; ++i) {
        const double expected = 30.0 * std::tanh(in.x[i] / 30.0);
        EXPECT_NEAR(y[static_cast<size_t>(i)], expected, 6e-7 * std::abs(expected)) << in.x[i];
      }
    }
  }
}

// One value through the lanes of the scalar words.
float scalar_exp(float x) {
  return Elementary<ScalarWords>::exp(ScalarWords::set1(x)).lane[0];
}

TEST(Elementary, ExpIsWithinTwoUnits) {
  for (int i = -87300; i <= 88300; ++i) {
    const float x = static_cast<float>(i) * 0.001f;
    const double expected = std::exp(static_cast<double>(x));
    ASSERT_NEAR(scalar_exp(x) / expected, 1.0, 2 * kUnit) << x;
  }
}

TEST(Elementary, ExpAtTheEdges) {
  EXPECT_EQ(scalar_exp(0.0f), 1.0f);
  EXPECT_EQ(scalar_exp(-0.0f), 1.0f);
  EXPECT_EQ(scalar_exp(-88.0f), 0.0f);
  EXPECT_EQ(scalar_exp(-1e30f), 0.0f);
  EXPECT_EQ(scalar_exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isfinite(scalar_exp(1e30f)));
  EXPECT_GT(scalar_exp(1e30f), 2e38f);
  EXPECT_TRUE(std::isnan(scalar_exp(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace quire
