// How fast a piece of work could be at most.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quire {

struct Work {
  double bytes = 0;       // that must be read
  double operations = 0;  // a multiply-add is two
};

// Rates per second; 0 = not measured, so no limit.
struct Roof {
  double bytes = 0;
  double operations = 0;
};

enum class Limit : uint8_t { kNone, kBytes, kOperations };

struct RoofShare {
  double share = 0;  // least possible time / `seconds`
  Limit limit = Limit::kNone;
};

// What share of the roof `work` reached that took `seconds` > 0, and which part of the roof was the lower.
[[nodiscard]] constexpr RoofShare share_of_roof(const Work& work, const Roof& roof, double seconds) {
  const double read_seconds = roof.bytes > 0 ? work.bytes / roof.bytes : 0;
  const double compute_seconds = roof.operations > 0 ? work.operations / roof.operations : 0;
  const double least = std::max(read_seconds, compute_seconds);
  if (least == 0) return {};
  return {least / seconds, read_seconds >= compute_seconds ? Limit::kBytes : Limit::kOperations};
}

}  // namespace quire
