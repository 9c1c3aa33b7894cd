// The decisions of one step: Scheduler::Impl's planning.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "sched/scheduler_state.h"

namespace quire {

// Those that decode together do so only when each has but one token left.
bool Scheduler::Impl::may_decode(const SequenceGroup& group) const {
  if (!group.decodes_together()) return true;
  return std::ranges::all_of(group.members,
                             [](const Sequence* s) { return s->started && s->left_to_compute() == 1; });
}

void Scheduler::Impl::plan_decodes() {
  const std::vector<SequenceGroup*> oldest_first = running;
  for (SequenceGroup* group : oldest_first) {
    if (!group->running || !may_decode(*group)) continue;
    for (Sequence* s : group->members) {
      if (s->rows > 0 || !s->started || s->left_to_compute() > 1) continue;
      if (!reserve_or_preempt(*s, 1)) break;
      s->rows = 1;
    }
  }
}

int Scheduler::Impl::rows_planned() const {
  int rows = 0;
  for (const SequenceGroup* group : running)
    for (const Sequence* s : group->members) rows += s->rows;
  return rows;
}

int Scheduler::Impl::rows_wanted(const Sequence& s) const {
  if (s.rows > 0 || !s.started) return 0;
  const int left = s.left_to_compute() - (s.group->decodes_together() ? 1 : 0);
  const int chunk = s.request.prefill_chunk_tokens;
  return std::min(left, chunk > 0 ? chunk : std::numeric_limits<int>::max());
}

int Scheduler::Impl::prefill_budget() const {
  const int decode_rows = rows_planned();
  return prefill_rows_allowed(pace, {.decode_rows = decode_rows,
                                     .rows_max = options.step_tokens_max - decode_rows,
                                     .itl_target_ms = static_cast<double>(options.itl_target_ms)});
}

void Scheduler::Impl::plan_prefills() {
  // Who was just preempted must not come back at once.
  if (!preempted_now) admit_waiting(prefill_budget());
  start_members();
  // Of those that have just come, the cache may have left one token to compute.
  plan_decodes();

  std::vector<Sequence*> prefills;
  std::vector<int> wanted;
  for (SequenceGroup* group : running) {
    for (Sequence* s : group->members) {
      if (rows_wanted(*s) == 0) continue;
      prefills.push_back(s);
      wanted.push_back(rows_wanted(*s));
    }
  }
  const std::vector<int> shares =
      share_prefill_budget({.rows = prefill_budget(), .share_min = options.geometry.block_tokens}, wanted);
  const auto has_rows = [](const SequenceGroup& group) {
    return std::ranges::any_of(group.members, [](const Sequence* s) { return s->rows > 0; });
  };
  for (size_t i = 0; i < prefills.size(); ++i) {
    Sequence& s = *prefills[i];
    if (!s.group->running || shares[i] == 0) continue;
    int rows = rows_that_fit(s, shares[i]);
    if (rows <= 0) {
      // A prefill waits for room, save the oldest request: one of its sequences must go on whatever it costs.
      if (s.group != running.front() || has_rows(*s.group)) continue;
      rows = 1;
    }
    if (reserve_or_preempt(s, rows)) s.rows = rows;
  }
}

void Scheduler::Impl::append_rows(const Sequence& s, ScheduledStep& step) const {
  if (s.left_to_compute() == s.rows) step.completing.push_back(static_cast<int>(step.plan.sequences.size()));
  PlannedSequence& planned = step.plan.sequences.emplace_back();
  planned.seq = s.request.seq;
  planned.first_position = s.computed();
  planned.tokens =
      std::span(s.tokens).subspan(static_cast<size_t>(s.computed()), static_cast<size_t>(s.rows));
  if (s.wants_prompt_logits()) {
    planned.logits_from = std::clamp(s.prompt_logits_done - s.computed(), 0, s.rows);
  } else {
    planned.logits_from = s.left_to_compute() == s.rows ? s.rows - 1 : s.rows;
  }
  for (int g = 0; g < group_count(); ++g) planned.block_table[static_cast<size_t>(g)] = s.table.ids(g);
}

ScheduledStep Scheduler::Impl::assemble() {
  ScheduledStep step;
  for (const PendingCopy& copy : copies) step.copies.push_back(copy.copy);
  const auto append_if = [&](auto&& wanted) {
    for (const SequenceGroup* group : running)
      for (const Sequence* s : group->members)
        if (s->rows > 0 && wanted(*s)) append_rows(*s, step);
  };
  append_if([](const Sequence& s) { return s.left_to_compute() == 1; });
  append_if([](const Sequence& s) { return s.left_to_compute() > 1; });
  CHECK(!step.empty() || sequences.empty());
  return step;
}

// The most of `rows` rows for which free and idle blocks suffice.
int Scheduler::Impl::rows_that_fit(const Sequence& s, int rows) const {
  for (int g = 0; g < group_count(); ++g) {
    const BlockPool& pool = *pools[static_cast<size_t>(g)];
    const int64_t copied = s.table.shares_tail() ? 1 : 0;
    const int64_t blocks = std::ssize(s.table.ids(g)) + pool.free_count() + pool.idle_count() - copied;
    const int64_t room = blocks * options.geometry.block_tokens - s.computed();
    rows = static_cast<int>(std::min<int64_t>(rows, room));
  }
  return rows;
}

// False when the sequence's own group became the victim.
bool Scheduler::Impl::reserve_or_preempt(Sequence& s, int rows) {
  while (true) {
    const BlockCounts wanted = s.table.blocks_wanted(rows);
    int lacking_group = -1;
    for (int g = 0; g < group_count() && lacking_group < 0; ++g)
      if (!make_room(g, wanted[static_cast<size_t>(g)])) lacking_group = g;
    if (lacking_group < 0) break;
    preempt_victim(lacking_group);
    if (!s.group->running) return false;
  }
  if (s.table.shares_tail()) unshare_tail(s);
  CHECK(s.table.reserve(rows));
  return true;
}

void Scheduler::Impl::unshare_tail(Sequence& s) {
  TailCopy tail = s.table.unshare_tail();
  for (size_t g = 0; g < pools.size(); ++g) {
    copies.push_back({.sequence = &s,
                      .copy = {.group = static_cast<int>(g), .from = tail.from[g].id(), .to = tail.to[g]},
                      .source = {},
                      .forked_from = std::move(tail.from[g])});
  }
}

bool Scheduler::Impl::make_room(int group, int blocks) {
  while (pools[static_cast<size_t>(group)]->free_count() < blocks)
    if (!evict_one(group)) return false;
  return true;
}

bool Scheduler::Impl::evict_one(int group) {
  const int free_before = pools[static_cast<size_t>(group)]->free_count();
  if (!tree.evict_one(group)) return false;
  accounting.evictions += pools[static_cast<size_t>(group)]->free_count() - free_before;
  return true;
}

void Scheduler::Impl::preempt_victim(int group) {
  std::vector<VictimCandidate> candidates;
  for (const SequenceGroup* r : std::span(running).subspan(1)) {
    // What the sequences have in common is computed once.
    int computed = std::min(r->lead().computed(), r->prompt_tokens);
    for (const Sequence* s : r->members) computed += std::max(0, s->computed() - r->prompt_tokens);
    candidates.push_back({.priority = r->priority,
                          .arrival = r->place.arrival,
                          .recompute_tokens = computed,
                          .blocks_freed = blocks_of(*r, group).unshared,
                          .preemptions = r->preemptions});
  }
  const auto victim = choose_victim(candidates);
  // The door let nothing in that does not fit alone.
  CHECK(victim);
  preempt(*running[*victim + 1]);
}

void Scheduler::Impl::preempt(SequenceGroup& group) {
  // One that was admitted in this very step has lost nothing.
  if (!group.admitted_now) {
    ++group.preemptions;
    ++accounting.preemptions;
    group.waiting_as = SequenceState::kPreempted;
  }
  preempted_now = true;
  stop_running(group);
}

}  // namespace quire
