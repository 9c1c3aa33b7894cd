#include "engine/scheduler_stats.h"

#include "kv/kv_store.h"

namespace quire {
namespace {

PoolUse pool_use(const KvUse& use) {
  return {.blocks_held = use.blocks_held,
          .blocks_as_copies = use.blocks_as_copies,
          .slots_held = use.slots_held,
          .slots_written = use.slots_written,
          .slots_external_waste = use.slots_external_waste};
}

}  // namespace

void fill_scheduler_stats(const Scheduler& scheduler, const KvGeometry& geometry, EngineStats& stats) {
  const KvAccounting accounting = scheduler.kv_accounting();
  stats.sequences_running = scheduler.running_count();
  stats.sequences_waiting = scheduler.waiting_count();
  stats.sequence_steps = static_cast<uint64_t>(accounting.running_sequences_sum);
  stats.preemptions = static_cast<uint64_t>(accounting.preemptions);
  stats.evictions = static_cast<uint64_t>(accounting.evictions);
  stats.block_copies = static_cast<uint64_t>(accounting.copies);
  stats.pools.clear();
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    const BlockPool& pool = scheduler.pool(static_cast<int>(g));
    stats.pools.push_back({.total = pool.total(),
                           .free = pool.free_count(),
                           .open = pool.open_count(),
                           .pinned = pool.pinned_count(),
                           .idle = pool.idle_count(),
                           .block_bytes = kv_block_bytes(geometry, static_cast<int>(g)),
                           .now = pool_use(accounting.now[g]),
                           .step_sums = pool_use(accounting.step_sums[g])});
  }
}

}  // namespace quire
