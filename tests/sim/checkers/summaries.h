#pragma once

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// What a stream says of itself is true: no more events than it promises to keep for a slow reader, times in
// order, tokens counted, no more blocks at once than the prompt's and each sequence's own and one (under
// kPaged, what was preempted comes back without sharing).
class Summaries : public Checker {
 public:
  using Checker::Checker;
  void on_answer(const Answered& answered) override;

 private:
  [[nodiscard]] int blocks_max(const Request& wish) const;
};

}  // namespace quire::sim
