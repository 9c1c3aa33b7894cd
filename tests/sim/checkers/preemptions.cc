#include "tests/sim/checkers/preemptions.h"

#include <algorithm>

#include "sched/policy.h"

namespace quire::sim {

void Preemptions::on_arrival(const Arrived& arrived) {
  priorities_ |= arrived.client.sequence.priority != 0;
}

void Preemptions::on_end(const LiveSequence& sequence) {
  const auto& groups = options_.geometry.groups;
  const bool windows = std::ranges::any_of(groups, [](const LayerGroup& group) { return group.window > 0; });
  const int bound = windows || priorities_ ? 8 * kPreemptionsFree : kPreemptionsFree;
  const int preemptions = scheduler_.figures(sequence.seq).preemptions;
  if (preemptions > bound)
    violated("sequence {} was preempted {} times, the bound is {}", sequence.seq.value, preemptions, bound);
}

}  // namespace quire::sim
