// One row of logits, scanned once: its maximum, its best entries, its log-sum-exp.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"

namespace quire {

// The sum of exp((logit - shift) * scale) over a row, shift being its maximum and scale > 0. The order of the
// additions depends on the row's length only. Relative error below 1e-12.
struct ExpTerms {
  float shift = 0;
  double scale = 1;
};
[[nodiscard]] double sum_exp(std::span<const float> logits, ExpTerms terms);
// The same; the terms go to `weights` too, which is as long as the row.
double sum_exp(std::span<const float> logits, ExpTerms terms, std::span<double> weights);
// exp(x) for x <= 0; below -708 it is 0. The same bits as the terms above.
[[nodiscard]] double exp_nonpositive(double x);

// A view of one row; keeps its buffers between rows. One thread at a time. Entries are ordered by falling
// logit, ties by rising id: an order without equals, so selections do not depend on how they are made.
// Cost: scan() is one pass; select_top(k) visits only the stretches whose maximum can matter.
class LogitRow {
 public:
  enum class Fault { kNone, kNotANumber, kInfinite, kAllImpossible };

  // Takes `logits` (which outlive the use of this object) as the row. -inf means an impossible token; NaN,
  // +inf and a row of nothing but -inf are faults, and then nothing else may be called.
  [[nodiscard]] Fault scan(std::span<const float> logits);

  [[nodiscard]] std::span<const float> logits() const { return logits_; }
  [[nodiscard]] float max() const { return max_; }
  [[nodiscard]] TokenId argmax() const;  // the lowest id among equals
  [[nodiscard]] float logit(TokenId id) const { return logits_[static_cast<size_t>(id)]; }
  [[nodiscard]] int size() const { return static_cast<int>(logits_.size()); }
  [[nodiscard]] double logsumexp() const;
  // The best `count` possible tokens (fewer when there are not so many), best first. Valid until the next
  // call.
  [[nodiscard]] std::span<const TokenId> select_top(int count);

 private:
  [[nodiscard]] float selection_bound(size_t count);

  std::span<const float> logits_;
  std::vector<float> stretch_max_;  // of kStretch logits each
  std::vector<float> ranked_;
  std::vector<TokenId> selected_;
  float max_ = 0;
};

}  // namespace quire
