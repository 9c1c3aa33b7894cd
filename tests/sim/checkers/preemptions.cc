#include "tests/sim/checkers/preemptions.h"

#include <algorithm>

#include "sched/policy.h"

namespace quire::sim {

void Preemptions::on_beat(std::span<const LivingSequence> living) {
  const auto& groups = options().geometry.groups;
  const bool windows = std::ranges::any_of(groups, [](const LayerGroup& group) { return group.window > 0; });
  const int bound = windows || priorities_ ? 8 * kPreemptionsFree : kPreemptionsFree;
  for (const LivingSequence& sequence : living) {
    const int preemptions = scheduler().figures(sequence.seq).preemptions;
    if (preemptions > bound)
      violated("request {} was preempted {} times, the bound is {}", sequence.request.value, preemptions,
               bound);
  }
}

}  // namespace quire::sim
