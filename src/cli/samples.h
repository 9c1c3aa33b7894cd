// Measured values and what is told of them.
#pragma once

#include <boost/json.hpp>
#include <vector>

namespace quire {

// The values of one quantity, in the order in which they were measured. All but add() need at least one.
// Cost: each figure looks at all values.
struct Samples {
  std::vector<double> values{};

  void add(double value) { values.push_back(value); }
  [[nodiscard]] bool empty() const { return values.empty(); }
  [[nodiscard]] double min() const;
  [[nodiscard]] double max() const;
  [[nodiscard]] double median() const;  // of an even number: the mean of the two in the middle
  [[nodiscard]] double mean() const;
  // The smallest value that at least `percent` % of the values do not exceed (nearest rank); (0, 100].
  [[nodiscard]] double percentile(double percent) const;
};

// {"median", "min", "max"} in units of `unit`; null without values.
[[nodiscard]] boost::json::value spread_json(const Samples& samples, double unit);
// {"mean", "p50", "p90", "p99", "max"}; null without values.
[[nodiscard]] boost::json::value percentiles_json(const Samples& samples);

}  // namespace quire
