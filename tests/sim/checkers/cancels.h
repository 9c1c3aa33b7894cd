#pragma once

#include <set>

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// A request that its client has left is gone with the next beat, whatever it was doing.
class Cancels : public Checker {
 public:
  using Checker::Checker;
  void on_leave(SeqId request) override { left_.insert(request); }
  void on_beat(std::span<const LivingSequence> living) override;

 private:
  std::set<SeqId> left_;  // since the last beat
};

}  // namespace quire::sim
