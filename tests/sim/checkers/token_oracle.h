#pragma once

#include "sched/toy_model.h"
#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// Every sequence says what the model says alone, without blocks: each sampled token, turned as the client
// turned it, and each prompt answer, once and in order.
class TokenOracle : public Checker {
 public:
  TokenOracle(const Scheduler& scheduler, SchedulerOptions options);
  void on_arrival(const Arrived& arrived) override;
  void on_end(const LiveSequence& sequence) override;

 private:
  const ToyModel model_;
  std::unordered_map<SeqId, PromptLogits> prompt_logits_;
};

}  // namespace quire::sim
