#include "tests/sim/checkers/cancels.h"

namespace quire::sim {

void Cancels::on_beat(std::span<const LivingSequence> living) {
  for (const LivingSequence& sequence : living)
    if (left_.contains(sequence.request))
      violated("request {} was left, yet sequence {} goes on", sequence.request.value, sequence.seq.value);
  left_.clear();
}

}  // namespace quire::sim
