#include "cli/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace quire {
namespace {

namespace json = boost::json;

// The value of 0-based `rank` in ascending order.
double ranked(std::vector<double> values, size_t rank) {
  CHECK(rank < values.size());
  auto place = values.begin() + static_cast<std::ptrdiff_t>(rank);
  std::ranges::nth_element(values, place);
  return *place;
}

}  // namespace

double Samples::min() const {
  return ranked(values, 0);
}

double Samples::max() const {
  CHECK(!values.empty());
  return *std::ranges::max_element(values);
}

double Samples::median() const {
  const size_t middle = values.size() / 2;
  const double upper = ranked(values, middle);
  return values.size() % 2 == 1 ? upper : (ranked(values, middle - 1) + upper) / 2;
}

double Samples::mean() const {
  CHECK(!values.empty());
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Samples::percentile(double percent) const {
  CHECK(percent > 0 && percent <= 100);
  const double rank = std::ceil(percent * static_cast<double>(values.size()) / 100);
  return ranked(values, static_cast<size_t>(std::max(rank, 1.0)) - 1);
}

json::value spread_json(const Samples& samples, double unit) {
  if (samples.empty()) return nullptr;
  return json::object{
      {"median", samples.median() / unit}, {"min", samples.min() / unit}, {"max", samples.max() / unit}};
}

json::value percentiles_json(const Samples& samples) {
  if (samples.empty()) return nullptr;
  return json::object{{"mean", samples.mean()},
                      {"p50", samples.percentile(50)},
                      {"p90", samples.percentile(90)},
                      {"p99", samples.percentile(99)},
                      {"max", samples.max()}};
}

}  // namespace quire
