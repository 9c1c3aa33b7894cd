// The decisions of one step: Scheduler::Impl's planning.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "sched/scheduler_state.h"

namespace quire {

void Scheduler::Impl::plan_decodes() {
  const std::vector<Sequence*> oldest_first = running;
  for (Sequence* s : oldest_first) {
    if (!s->running || s->left_to_compute() > 1) continue;
    if (reserve_or_preempt(*s, 1)) s->rows = 1;
  }
}

void Scheduler::Impl::plan_prefills() {
  const auto decoding = [](const Sequence* s) { return s->rows > 0; };
  const int budget = options.step_tokens_max - static_cast<int>(std::ranges::count_if(running, decoding));
  // Who was just preempted must not come back at once.
  if (!preempted_now) admit_waiting(budget);

  std::vector<Sequence*> prefills;
  std::vector<int> wanted;
  for (Sequence* s : running) {
    if (s->rows > 0) continue;
    const int chunk = s->request.prefill_chunk_tokens;
    prefills.push_back(s);
    wanted.push_back(std::min(s->left_to_compute(), chunk > 0 ? chunk : std::numeric_limits<int>::max()));
  }
  const std::vector<int> shares =
      share_prefill_budget({.rows = budget, .share_min = options.geometry.block_tokens}, wanted);
  for (size_t i = 0; i < prefills.size(); ++i) {
    Sequence& s = *prefills[i];
    if (!s.running || shares[i] == 0) continue;
    int rows = rows_that_fit(s, shares[i]);
    // A prefill waits for room, save the oldest sequence: it must go on whatever it costs.
    if (rows == 0 && !is_oldest_running(s)) continue;
    rows = std::max(rows, 1);
    if (reserve_or_preempt(s, rows)) s.rows = rows;
  }
}

ScheduledStep Scheduler::Impl::assemble() {
  ScheduledStep step;
  for (const PendingCopy& copy : copies) step.copies.push_back(copy.copy);
  const auto append = [&](const Sequence& s) {
    if (s.left_to_compute() == s.rows)
      step.completing.push_back(static_cast<int>(step.plan.sequences.size()));
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
  };
  const auto is_decode = [](const Sequence* s) { return s->left_to_compute() == 1; };
  for (const Sequence* s : running)
    if (s->rows > 0 && is_decode(s)) append(*s);
  for (const Sequence* s : running)
    if (s->rows > 0 && !is_decode(s)) append(*s);
  CHECK(!step.empty() || sequences.empty());
  return step;
}

void Scheduler::Impl::admit_waiting(int budget) {
  auto prefilling =
      static_cast<int>(std::ranges::count_if(running, [](const Sequence* s) { return s->rows == 0; }));
  while (!waiting.empty() && std::ssize(running) < options.running_sequences_max && prefilling < budget) {
    if (!try_admit(**waiting.begin())) break;
    ++prefilling;
  }
}

bool Scheduler::Impl::try_admit(Sequence& s) {
  const PrefixMatch match =
      tree.match(s.request.scope, std::span(s.tokens).first(static_cast<size_t>(s.reusable())));
  // The oldest running one is never a victim, so one that would become the oldest must fit to its end, too.
  const bool becomes_oldest = !running.empty() && s.place.arrival < running.front()->place.arrival;
  const bool must_fit = s.preemptions >= kPreemptionsFree || becomes_oldest;
  const int spare =
      blocks_to_spare(view_of(s, match, must_fit ? Horizon::kEnd : Horizon::kSoon), group_count());
  if (spare < 0 && !running.empty()) return false;
  adopt_prefix(s, match);
  // A copy pins its source during the step: one block more than the sequence needs.
  if (match.partial_tokens > 0 && spare >= 1) adopt_partial(s, match);
  if (!s.was_admitted) s.cached_tokens = std::min(s.computed(), s.prompt_tokens);
  run(s);
  return true;
}

BlockCounts Scheduler::Impl::peak_of(const Sequence& s, Horizon horizon) const {
  const int growth = kGrowthBlocks * options.geometry.block_tokens;
  return peak_blocks(options.geometry, horizon == Horizon::kEnd ? s.length_max() : s.length_soon(growth));
}

AdmissionView Scheduler::Impl::view_of(const Sequence& s, const PrefixMatch& match, Horizon horizon) const {
  AdmissionView view;
  view.wanted = peak_of(s, horizon);
  for (const Sequence* r : running) {
    const BlockCounts peak = peak_of(*r, horizon);
    for (size_t g = 0; g < pools.size(); ++g) view.promised[g] += peak[g];
  }
  for (size_t g = 0; g < pools.size(); ++g) {
    const BlockPool& pool = *pools[g];
    if (options.geometry.groups[g].window > 0) {
      // Blocks come and go, and a shared one that one sequence drops is not free: weigh the peaks.
      view.available[g] = pool.total();
      continue;
    }
    view.available[g] = pool.free_count() + pool.idle_count();
    for (PrefixNodeId node : match.path)
      if (pool.state(tree.block(node, static_cast<int>(g))) == BlockState::kIdle) --view.available[g];
    view.wanted[g] -= static_cast<int>(match.path.size());
    for (const Sequence* r : running)
      view.promised[g] -= std::min(r->table.blocks_used(static_cast<int>(g)), peak_of(*r, horizon)[g]);
  }
  return view;
}

void Scheduler::Impl::adopt_prefix(Sequence& s, const PrefixMatch& match) {
  const int block_tokens = options.geometry.block_tokens;
  const int end = static_cast<int>(match.path.size()) * block_tokens;
  for (size_t i = 0; i < match.path.size(); ++i) {
    const int last_position = (static_cast<int>(i) + 1) * block_tokens - 1;
    SealedBlocks blocks;
    for (size_t g = 0; g < pools.size(); ++g) {
      const int window = options.geometry.groups[g].window;
      if (window == 0 || last_position > end - window)
        blocks[g] = pools[g]->pin(tree.block(match.path[i], static_cast<int>(g)));
    }
    s.table.adopt(std::move(blocks));
  }
  s.tip = match.path.empty() ? kNoPrefixNode : match.path.back();
  tree.hold(s.tip);
}

void Scheduler::Impl::adopt_partial(Sequence& s, const PrefixMatch& match) {
  SealedBlocks sources;
  for (size_t g = 0; g < pools.size(); ++g)
    sources[g] = pools[g]->pin(tree.block(match.partial, static_cast<int>(g)));
  for (int g = 0; g < group_count(); ++g)
    if (!make_room(g, 1)) return;
  const auto to = s.table.adopt_partial(match.partial_tokens);
  CHECK(to);
  for (size_t g = 0; g < pools.size(); ++g) {
    copies.push_back({.sequence = &s,
                      .copy = {.group = static_cast<int>(g), .from = sources[g].id(), .to = (*to)[g]},
                      .source = std::move(sources[g])});
  }
}

// The most of `rows` rows for which free and idle blocks suffice.
int Scheduler::Impl::rows_that_fit(const Sequence& s, int rows) const {
  for (int g = 0; g < group_count(); ++g) {
    const BlockPool& pool = *pools[static_cast<size_t>(g)];
    const int64_t blocks = std::ssize(s.table.ids(g)) + pool.free_count() + pool.idle_count();
    const int64_t room = blocks * options.geometry.block_tokens - s.computed();
    rows = static_cast<int>(std::min<int64_t>(rows, room));
  }
  return rows;
}

// False when the sequence itself became the victim.
bool Scheduler::Impl::reserve_or_preempt(Sequence& s, int rows) {
  while (true) {
    const BlockCounts wanted = s.table.blocks_wanted(rows);
    int lacking_group = -1;
    for (int g = 0; g < group_count() && lacking_group < 0; ++g)
      if (!make_room(g, wanted[static_cast<size_t>(g)])) lacking_group = g;
    if (lacking_group < 0) break;
    preempt_victim(lacking_group);
    if (!s.running) return false;
  }
  CHECK(s.table.reserve(rows));
  return true;
}

bool Scheduler::Impl::make_room(int group, int blocks) {
  while (pools[static_cast<size_t>(group)]->free_count() < blocks)
    if (!tree.evict_one(group)) return false;
  return true;
}

void Scheduler::Impl::preempt_victim(int group) {
  std::vector<VictimCandidate> candidates;
  for (const Sequence* s : std::span(running).subspan(1)) {
    candidates.push_back({.priority = s->request.priority,
                          .arrival = s->place.arrival,
                          .recompute_tokens = s->computed(),
                          .blocks_freed = s->table.blocks_unshared(group),
                          .preemptions = s->preemptions});
  }
  const auto victim = choose_victim(candidates);
  // The door let nothing in that does not fit alone.
  CHECK(victim);
  preempt(*running[*victim + 1]);
}

void Scheduler::Impl::preempt(Sequence& s) {
  // One that was admitted in this very step has lost nothing.
  if (!s.admitted_now) {
    ++s.preemptions;
    s.waiting_as = SequenceState::kPreempted;
  }
  preempted_now = true;
  stop_running(s);
}

}  // namespace quire
