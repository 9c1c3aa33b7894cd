#include "tests/sim/checkers/liveness.h"

#include "engine/request_check.h"
#include "sched/policy.h"

namespace quire::sim {

void Liveness::on_arrival(const Arrived& arrived) {
  const auto prompt = static_cast<int64_t>(arrived.wish.prompt_token_ids.size());
  const int64_t work = (prompt + arrived.wish.sampling.max_tokens) * sequences_wanted(arrived.wish);
  work_come_ += work;
  alive_[arrived.request] = {.step = steps_, .abandoned = abandoned_, .work_gone = work_gone_, .work = work};
}

void Liveness::on_plan(const Planned& planned) {
  ++steps_;
  stepped_ = true;
  if (planned.plan.sequences.empty()) violated("{} requests live, the step is empty", alive_.size());
  for (const auto& [request, life] : alive_) {
    const int64_t work = work_come_ - life.work_gone;
    const int64_t bound = 200 + work * (kPreemptionsFree + 2) + 3 * (abandoned_ - life.abandoned);
    if (steps_ - life.step > bound)
      violated("request {} lives for {} steps, {} rows of work came beside it", request.value,
               steps_ - life.step, work);
  }
}

void Liveness::on_abandon() {
  ++abandoned_;
  stepped_ = false;
}

void Liveness::on_beat(std::span<const LivingSequence> living) {
  if (!living.empty() && !stepped_)
    violated("{} sequences live through a beat without a step", living.size());
  stepped_ = false;
}

void Liveness::on_gone(SeqId request) {
  const auto life = alive_.find(request);
  work_gone_ += life->second.work;
  alive_.erase(life);
}

}  // namespace quire::sim
