#include "tests/sim/checkers/liveness.h"

#include "sched/policy.h"

namespace quire::sim {

void Liveness::on_arrival(const Arrived& arrived) {
  const SequenceRequest& sequence = arrived.client.sequence;
  const auto prompt = static_cast<int64_t>(sequence.prompt.size());
  const int64_t work = (prompt + sequence.max_tokens) * sequence.sequences;
  work_come_ += work;
  alive_[sequence.seq] = {.step = steps_, .abandoned = abandoned_, .work_gone = work_gone_, .work = work};
}

void Liveness::on_plan(const ScheduledStep& step) {
  ++steps_;
  if (step.empty() != alive_.empty())
    violated("{} requests live, the step is {}", alive_.size(), step.empty() ? "empty" : "not empty");
  for (const auto& [request, life] : alive_) {
    const int64_t work = work_come_ - life.work_gone;
    const int64_t bound = 200 + work * (kPreemptionsFree + 2) + 3 * (abandoned_ - life.abandoned);
    if (steps_ - life.step > bound)
      violated("request {} lives for {} steps, {} rows of work came beside it", request.value,
               steps_ - life.step, work);
  }
}

void Liveness::on_request_end(SeqId request) {
  const auto life = alive_.find(request);
  work_gone_ += life->second.work;
  alive_.erase(life);
}

}  // namespace quire::sim
