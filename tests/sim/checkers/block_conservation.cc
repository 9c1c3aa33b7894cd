#include "tests/sim/checkers/block_conservation.h"

#include <set>

namespace quire::sim {

void BlockConservation::on_plan(const Planned& step) {
  scheduler().audit();
  if (step.plan.row_count() > options().step_tokens_max)
    violated("{} rows in a step of at most {}", step.plan.row_count(), options().step_tokens_max);
  if (scheduler().running_count() > options().running_sequences_max)
    violated("{} sequences run, at most {} may", scheduler().running_count(),
             options().running_sequences_max);
  std::set<SeqId> once;
  std::set<std::pair<size_t, BlockId>> written;
  for (const PlannedSequence& planned : step.plan.sequences) {
    if (planned.tokens.empty() || !once.insert(planned.seq).second)
      violated("sequence {} is planned twice or for nothing", planned.seq.value);
    const int end = planned.first_position + static_cast<int>(planned.tokens.size());
    for (size_t g = 0; g < options().geometry.groups.size(); ++g) {
      const int bt = options().geometry.block_tokens;
      for (int block = planned.first_position / bt; block <= (end - 1) / bt; ++block) {
        const BlockId id = planned.block_table[g][static_cast<size_t>(block)];
        if (scheduler().pool(static_cast<int>(g)).state(id) != BlockState::kOpen)
          violated("sequence {} writes block {} of group {}, which is not open", planned.seq.value, id.value,
                   g);
        if (!written.insert({g, id}).second) violated("block {} of group {} has two writers", id.value, g);
      }
    }
  }
}

void BlockConservation::on_silence() {
  const EngineStats stats = watched_.loop.stats();
  if (stats.running + stats.waiting + stats.sequences_running + stats.sequences_waiting != 0)
    violated("nothing lives, yet {} requests run and {} wait, {} sequences run and {} wait", stats.running,
             stats.waiting, stats.sequences_running, stats.sequences_waiting);
  for (size_t g = 0; g < options().geometry.groups.size(); ++g) {
    const BlockPool& pool = scheduler().pool(static_cast<int>(g));
    const auto by_prefix = std::ssize(scheduler().pins().holders(static_cast<int>(g)));
    if (pool.open_count() > 0 || pool.pinned_count() != by_prefix)
      violated("nothing lives, yet {} blocks of group {} are open and {} pinned, {} of them by prefixes",
               pool.open_count(), g, pool.pinned_count(), by_prefix);
    const PoolStats& told = stats.pools[g];
    if (told.open != pool.open_count() || told.pinned != pool.pinned_count() ||
        told.free + told.open + told.pinned + told.idle != told.total)
      violated("the engine tells of {} open and {} pinned blocks of group {}, there are {} and {}", told.open,
               told.pinned, g, pool.open_count(), pool.pinned_count());
  }
}

}  // namespace quire::sim
