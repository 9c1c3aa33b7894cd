#include "tests/sim/checkers/pinned_prefixes.h"

namespace quire::sim {

void PinnedPrefixes::on_time(int64_t now_ns) {
  std::erase_if(pins_, [&](const auto& pin) { return pin.second.expires_ns <= now_ns; });
  if (scheduler_.pins().count() != static_cast<int>(pins_.size()))
    violated("{} prefixes are pinned, {} should be", scheduler_.pins().count(), pins_.size());
}

void PinnedPrefixes::on_plan(const ScheduledStep&) {
  const auto block_tokens = static_cast<size_t>(options_.geometry.block_tokens);
  for (const auto& [id, pin] : pins_) {
    if (pin.scope.value < dropped_before_) continue;
    const size_t blocks = pin.tokens.size() / block_tokens;
    if (scheduler_.tree().match(pin.scope, pin.tokens).path.size() < blocks)
      violated("the prefix of pin {} is not all there", id.value);
  }
  for (size_t g = 0; g < options_.block_counts.size(); ++g) {
    const size_t pinned = scheduler_.pins().holders(static_cast<int>(g)).size();
    if (pinned > static_cast<size_t>(options_.pinned_blocks_max))
      violated("{} blocks of group {} are pinned, the quota is {}", pinned, g, options_.pinned_blocks_max);
  }
}

}  // namespace quire::sim
