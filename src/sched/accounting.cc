// What becomes of the blocks, in figures: Scheduler::Impl's part of KvAccounting.
#include <algorithm>
#include <vector>

#include "sched/scheduler_state.h"

namespace quire {

void Scheduler::Impl::note_admission(const SequenceGroup& group) {
  ++accounting.requests_admitted;
  accounting.prompt_tokens += group.prompt_tokens;
  accounting.hit_tokens += group.lead().cached_tokens;
}

void Scheduler::Impl::note_use() {
  if (running.empty()) return;
  for (int g = 0; g < group_count(); ++g) accounting.step_sums[static_cast<size_t>(g)] += use_of(g);
  ++accounting.steps;
  for (const SequenceGroup* group : running) accounting.running_sequences_sum += std::ssize(group->members);
}

KvAccounting Scheduler::kv_accounting() const {
  KvAccounting accounting = impl_->accounting;
  for (int g = 0; g < impl_->group_count(); ++g) accounting.now[static_cast<size_t>(g)] = impl_->use_of(g);
  return accounting;
}

KvUse Scheduler::Impl::use_of(int g) const {
  const BlockPool& pool = *pools[static_cast<size_t>(g)];
  const int64_t block_tokens = options.geometry.block_tokens;
  KvUse use;
  use.blocks_pinned_alone = pins.blocks_held_alone(g);
  const int64_t sealed = pool.pinned_count() - use.blocks_pinned_alone;
  use.blocks_held = sealed + pool.open_count();
  use.slots_held = use.blocks_held * block_tokens;
  use.slots_written = sealed * block_tokens;
  for (const SequenceGroup* group : running) {
    use.slots_written += tail_slots_written(*group, g);
    for (const Sequence* s : group->members) use.blocks_as_copies += s->table.blocks_used(g);
  }
  if (options.kv_policy == KvPolicy::kContiguous && !waiting.empty()) {
    const int wanted = peak_of(**waiting.begin(), Horizon::kEnd)[static_cast<size_t>(g)];
    use.slots_external_waste = pool.free_in_ranges_below(wanted) * block_tokens;
  }
  return use;
}

// Of blocks that are not full; one that several sequences share counts once.
int Scheduler::Impl::tail_slots_written(const SequenceGroup& group, int g) const {
  int slots = 0;
  std::vector<BlockId> seen;
  for (const Sequence* s : group.members) {
    const int tail = s->computed() % options.geometry.block_tokens;
    if (tail == 0) continue;
    const BlockId block = s->table.ids(g)[static_cast<size_t>(s->computed() / options.geometry.block_tokens)];
    if (std::ranges::find(seen, block) != seen.end()) continue;
    seen.push_back(block);
    slots += tail;
  }
  return slots;
}

}  // namespace quire
