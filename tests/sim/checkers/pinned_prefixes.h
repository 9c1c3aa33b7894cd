#pragma once

#include <map>
#include <set>

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
  void on_scope_drop(CacheScope scope) override { dropped_.insert(scope.value); }
  void on_plan(const Planned& planned) override;
  void on_beat(std::span<const LivingSequence>) override;

 private:
  std::map<PinId, Pinned> pins_;
  std::set<uint64_t> dropped_;  // scopes that are forgotten
};

}  // namespace quire::sim
