#pragma once

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// No request is preempted without end. Strict with full attention and one priority, where admission can tell
// what everybody will need; else within a generous bound.
class Preemptions : public Checker {
 public:
  using Checker::Checker;
  void on_arrival(const Arrived& arrived) override { priorities_ |= arrived.wish.priority != 0; }
  void on_beat(std::span<const LivingSequence> living) override;

 private:
  bool priorities_ = false;
};

}  // namespace quire::sim
