#include "tests/sim/checkers/pinned_prefixes.h"

namespace quire::sim {

void PinnedPrefixes::on_time(int64_t now_ns) {
  std::erase_if(pins_, [&](const auto& pin) { return pin.second.expires_ns <= now_ns; });
}

void PinnedPrefixes::on_beat(std::span<const LivingSequence>) {
  if (scheduler().pins().count() != static_cast<int>(pins_.size()))
    violated("{} prefixes are pinned, {} should be", scheduler().pins().count(), pins_.size());
}

void PinnedPrefixes::on_plan(const Planned&) {
  const auto block_tokens = static_cast<size_t>(options().geometry.block_tokens);
  for (const auto& [id, pin] : pins_) {
    if (dropped_.contains(pin.scope.value)) continue;
    const size_t blocks = pin.tokens.size() / block_tokens;
    if (scheduler().tree().match(pin.scope, pin.tokens).path.size() < blocks)
      violated("the prefix of pin {} is not all there", id.value);
  }
  for (size_t g = 0; g < options().block_counts.size(); ++g) {
    const size_t pinned = scheduler().pins().holders(static_cast<int>(g)).size();
    if (pinned > static_cast<size_t>(options().pinned_blocks_max))
      violated("{} blocks of group {} are pinned, the quota is {}", pinned, g, options().pinned_blocks_max);
  }
}

}  // namespace quire::sim
