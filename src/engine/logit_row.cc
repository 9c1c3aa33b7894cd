#include "engine/logit_row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"

// Bodies that are compiled once for every x86-64 and once for AVX2. Both do the same operations in the same
// order, without fused multiply-adds, so they agree bit for bit.
#define QUIRE_INLINE [[gnu::always_inline]] inline
#if defined(__x86_64__)
#define QUIRE_AVX2 [[gnu::target("avx2")]]
#endif

namespace quire {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kStretch = 256;
constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// The exponential is e^x = 2^k * e^r with |r| <= ln(2)/2: the polynomial's last term is below 2e-13 there.
// Plain arithmetic without branches, so that the compiler turns the loops below into vector code.
QUIRE_INLINE double exp_reduced(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 6.93147180369123816490e-01;  // 32 bits, so that k * it is exact
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kRound = 0x1.8p52;  // adding it rounds to an integer, which then stands in the low bits
  x = x < -708.0 ? -708.0 : x;
  double shifted = x * kLog2E + kRound;
  double k = shifted - kRound;
  double r = (x - k * kLn2High) - k * kLn2Low;
  double p = 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  auto exponent = (std::bit_cast<uint64_t>(shifted) + 1023) << 52;
  return p * std::bit_cast<double>(exponent);
}

QUIRE_INLINE double exp_term(float logit, ExpTerms terms) {
  double x = (static_cast<double>(logit) - static_cast<double>(terms.shift)) * terms.scale;
  double e = exp_reduced(x);
  return x < -708.0 ? 0.0 : e;
}

template <class Store>
QUIRE_INLINE double sum_terms(std::span<const float> logits, ExpTerms terms, Store store) {
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      double e = exp_term(logits[i + lane], terms);
      store(i + lane, e);
      sums[lane] += e;
    }
  }
  for (size_t lane = 0; i < logits.size(); ++i, ++lane) {
    double e = exp_term(logits[i], terms);
    store(i, e);
    sums[lane] += e;
  }
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

// The greatest of a stretch; NaN when it holds one.
QUIRE_INLINE float stretch_maximum(std::span<const float> values) {
  std::array<float, kLanes> best;
  std::array<uint32_t, kLanes> unordered{};
  best.fill(kImpossible);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      float x = values[i + lane];
      best[lane] = x > best[lane] ? x : best[lane];
      unordered[lane] |= x != x ? 1u : 0u;
    }
  }
  for (size_t lane = 0; i < values.size(); ++i, ++lane) {
    float x = values[i];
    best[lane] = x > best[lane] ? x : best[lane];
    unordered[lane] |= x != x ? 1u : 0u;
  }
  float most = kImpossible;
  uint32_t any = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    most = best[lane] > most ? best[lane] : most;
    any |= unordered[lane];
  }
  return any != 0 ? std::numeric_limits<float>::quiet_NaN() : most;
}

struct StoreNothing {
  void operator()(size_t, double) const {}
};
struct StoreAt {
  double* out;
  void operator()(size_t i, double e) const { out[i] = e; }
};

#if defined(QUIRE_AVX2)
bool has_avx2() {
  static const bool answer = __builtin_cpu_supports("avx2") != 0;
  return answer;
}
QUIRE_AVX2 double sum_terms_avx2(std::span<const float> logits, ExpTerms terms, StoreNothing store) {
  return sum_terms(logits, terms, store);
}
QUIRE_AVX2 double sum_terms_avx2(std::span<const float> logits, ExpTerms terms, StoreAt store) {
  return sum_terms(logits, terms, store);
}
#endif

template <class Store>
double sum_terms_dispatched(std::span<const float> logits, ExpTerms terms, Store store) {
#if defined(QUIRE_AVX2)
  if (has_avx2()) return sum_terms_avx2(logits, terms, store);
#endif
  return sum_terms(logits, terms, store);
}

}  // namespace

double exp_nonpositive(double x) {
  return x < -708.0 ? 0.0 : exp_reduced(x);
}

double sum_exp(std::span<const float> logits, ExpTerms terms) {
  return sum_terms_dispatched(logits, terms, StoreNothing{});
}

double sum_exp(std::span<const float> logits, ExpTerms terms, std::span<double> weights) {
  CHECK(weights.size() == logits.size());
  return sum_terms_dispatched(logits, terms, StoreAt{weights.data()});
}

LogitRow::Fault LogitRow::scan(std::span<const float> logits) {
  logits_ = logits;
  stretch_max_.clear();
  max_ = kImpossible;
  for (size_t begin = 0; begin < logits.size(); begin += kStretch) {
    float most = stretch_maximum(logits.subspan(begin, std::min(kStretch, logits.size() - begin)));
    if (std::isnan(most)) return Fault::kNotANumber;
    stretch_max_.push_back(most);
    max_ = std::max(max_, most);
  }
  if (max_ == kImpossible) return Fault::kAllImpossible;
  return std::isinf(max_) ? Fault::kInfinite : Fault::kNone;
}

TokenId LogitRow::argmax() const {
  auto stretch = std::ranges::find(stretch_max_, max_) - stretch_max_.begin();
  auto begin = logits_.begin() + stretch * static_cast<ptrdiff_t>(kStretch);
  return static_cast<TokenId>(std::find(begin, logits_.end(), max_) - logits_.begin());
}

double LogitRow::logsumexp() const {
  return static_cast<double>(max_) + std::log(sum_exp(logits_, {.shift = max_}));
}

// At least `count` logits are no smaller than it: one each in the `count` stretches of greatest maximum.
float LogitRow::selection_bound(size_t count) {
  if (count >= stretch_max_.size()) return std::numeric_limits<float>::lowest();
  ranked_ = stretch_max_;
  std::nth_element(ranked_.begin(), ranked_.begin() + static_cast<ptrdiff_t>(count) - 1, ranked_.end(),
                   std::greater<>());
  return std::max(ranked_[count - 1], std::numeric_limits<float>::lowest());
}

std::span<const TokenId> LogitRow::select_top(int count) {
  selected_.clear();
  if (count <= 0) return selected_;
  const float bound = selection_bound(static_cast<size_t>(count));
  for (size_t stretch = 0; stretch < stretch_max_.size(); ++stretch) {
    if (stretch_max_[stretch] < bound) continue;
    size_t end = std::min((stretch + 1) * kStretch, logits_.size());
    for (size_t i = stretch * kStretch; i < end; ++i) {
      if (logits_[i] >= bound) selected_.push_back(static_cast<TokenId>(i));
    }
  }
  auto better = [this](TokenId a, TokenId b) {
    float la = logit(a), lb = logit(b);
    return la != lb ? la > lb : a < b;
  };
  size_t kept = std::min(selected_.size(), static_cast<size_t>(count));
  auto middle = selected_.begin() + static_cast<ptrdiff_t>(kept);
  if (kept < selected_.size()) std::nth_element(selected_.begin(), middle, selected_.end(), better);
  std::sort(selected_.begin(), middle, better);
  selected_.resize(kept);
  return selected_;
}

}  // namespace quire
