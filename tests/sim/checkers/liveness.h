#pragma once

#include <map>

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// While somebody lives every beat is a step, and every request ends within the steps that its own work and
// that of all who lived beside it take at one row a step, done again for every preemption that is allowed.
// How fast its client reads makes no difference.
class Liveness : public Checker {
 public:
  using Checker::Checker;
  void on_arrival(const Arrived& arrived) override;
  void on_plan(const Planned& planned) override;
  void on_abandon() override;
  void on_beat(std::span<const LivingSequence> living) override;
  void on_gone(SeqId request) override;

 private:
  struct Life {
    int64_t step = 0, abandoned = 0;
    int64_t work_gone = 0;  // of requests that had ended when it came
    int64_t work = 0;
  };
  std::map<SeqId, Life> alive_;
  int64_t steps_ = 0, abandoned_ = 0, work_come_ = 0, work_gone_ = 0;
  bool stepped_ = false;  // in this beat
};

}  // namespace quire::sim
