#pragma once

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// No block is lost or held twice: the scheduler's audit after every change, each block that a step writes is
// open and has one writer, and in silence nothing is held and the engine's figures say so.
class BlockConservation : public Checker {
 public:
  using Checker::Checker;
  void on_plan(const Planned& planned) override;
  void on_abandon() override { scheduler().audit(); }
  void on_beat(std::span<const LivingSequence>) override { scheduler().audit(); }
  void on_silence() override;
};

}  // namespace quire::sim
