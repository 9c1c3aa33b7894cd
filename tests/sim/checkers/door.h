#pragma once

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// Whoever could be served alone is let in unless the inbox is full, by a count of its own; whoever is not is
// told field, value and limit. That all who are let in can be served is for Liveness to see.
class Door : public Checker {
 public:
  using Checker::Checker;
  void on_arrival(const Arrived& arrived) override;
  void on_refusal(const Refused& refused) override;
};

}  // namespace quire::sim
