#pragma once

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// No block is lost or held twice: the scheduler's audit after every change, nothing held in silence, and each
// block that a step writes is open and has one writer.
class BlockConservation : public Checker {
 public:
  using Checker::Checker;
  void on_plan(const ScheduledStep& step) override;
  void on_abandon() override { scheduler_.audit(); }
  void on_commit() override { scheduler_.audit(); }
  void on_silence() override;
};

}  // namespace quire::sim
