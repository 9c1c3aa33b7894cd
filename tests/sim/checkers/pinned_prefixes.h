#pragma once

#include <map>

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// A pinned prefix can be hit in every step until its time is over, and no longer counts then; the quota
// holds.
class PinnedPrefixes : public Checker {
 public:
  using Checker::Checker;
  void on_pin(const Pinned& pinned) override { pins_[pinned.id] = pinned; }
  void on_unpin(PinId pin) override { pins_.erase(pin); }
  void on_time(int64_t now_ns) override;
  void on_scope_drop(CacheScope scope) override { dropped_before_ = scope.value + 1; }
  void on_plan(const ScheduledStep& step) override;

 private:
  std::map<PinId, Pinned> pins_;
  uint64_t dropped_before_ = 0;  // scopes before it are forgotten
};

}  // namespace quire::sim
