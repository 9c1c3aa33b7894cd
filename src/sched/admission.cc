// Who comes in, and with what from the cache: Scheduler::Impl's admission.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sched/scheduler_state.h"

namespace quire {

int Scheduler::Impl::sequences_running() const {
  int count = 0;
  for (const SequenceGroup* group : running) count += group->sequences_expected();
  return count;
}

PrefixMatch Scheduler::Impl::match_of(const Sequence& s) const {
  return tree.match(s.request.scope, std::span(s.tokens).first(static_cast<size_t>(s.reusable())));
}

// The first of the queue, best to admit first.
std::vector<SequenceGroup*> Scheduler::Impl::first_to_admit() const {
  std::vector<SequenceGroup*> first;
  for (SequenceGroup* group : waiting) {
    if (first.size() == kMatchesPerStep) break;
    first.push_back(group);
  }
  if (first.size() < 2) return first;
  std::vector<AdmissionCandidate> candidates;
  for (const SequenceGroup* group : first) {
    const PrefixMatch match = match_of(group->lead());
    const int whole = static_cast<int>(match.path.size()) * options.geometry.block_tokens;
    candidates.push_back({.place = group->place, .cached_tokens = whole + match.partial_tokens});
  }
  std::vector<SequenceGroup*> ordered;
  for (size_t index : admission_order(candidates)) ordered.push_back(first[index]);
  return ordered;
}

void Scheduler::Impl::admit_waiting(int budget) {
  int prefilling = 0;
  for (const SequenceGroup* group : running)
    prefilling += static_cast<int>(
        std::ranges::count_if(group->members, [](const Sequence* s) { return s->rows == 0; }));
  bool all_came = true;
  while (all_came && !waiting.empty() && prefilling < budget &&
         sequences_running() < options.running_sequences_max) {
    for (SequenceGroup* group : first_to_admit()) {
      if (prefilling >= budget) return;
      if (sequences_running() + group->sequences_expected() > options.running_sequences_max) return;
      const PrefixMatch match = match_of(group->lead());
      if (group->leader_waits < kLeaderWaitsMax && waits_for_leader(group->lead(), match, running)) {
        ++group->leader_waits;
        all_came = false;
        continue;
      }
      if (!try_admit(*group, match)) return;
      ++prefilling;
    }
  }
}

// Whether `leader` is about to compute the whole block that `s` would compute next.
bool Scheduler::Impl::is_leader_of(const Sequence& leader, const Sequence& s,
                                   const PrefixMatch& match) const {
  const int end = (static_cast<int>(match.path.size()) + 1) * options.geometry.block_tokens;
  if (&leader == &s || !leader.started || leader.request.scope != s.request.scope) return false;
  if (leader.left_to_compute() <= 1 || leader.computed() >= end || leader.known() < end) return false;
  if (s.reusable() < end) return false;
  // Backwards: different prompts differ in their last block for the most part.
  return std::equal(s.tokens.rend() - end, s.tokens.rend(), leader.tokens.rend() - end);
}

bool Scheduler::Impl::waits_for_leader(const Sequence& s, const PrefixMatch& match,
                                       std::span<SequenceGroup* const> leaders) const {
  if (options.kv_policy != KvPolicy::kRadix) return false;
  return std::ranges::any_of(leaders, [&](const SequenceGroup* group) {
    return std::ranges::any_of(group->members,
                               [&](const Sequence* leader) { return is_leader_of(*leader, s, match); });
  });
}

bool Scheduler::Impl::try_admit(SequenceGroup& group, const PrefixMatch& match) {
  if (options.kv_policy == KvPolicy::kContiguous) return try_admit_range(group);
  // The oldest running one is never a victim, so one that would become the oldest must fit to its end, too.
  const bool becomes_oldest = !running.empty() && group.place.arrival < running.front()->place.arrival;
  const bool must_fit = group.preemptions >= kPreemptionsFree || becomes_oldest;
  const int spare =
      blocks_to_spare(view_of(group, match, must_fit ? Horizon::kEnd : Horizon::kSoon), group_count());
  if (spare < 0 && !running.empty()) return false;
  start(group.lead(), match, spare);
  run(group);
  return true;
}

bool Scheduler::Impl::try_admit_range(SequenceGroup& group) {
  if (!group.lead().table.reserve_range(static_cast<int>(group.length_max()))) {
    // The door let nothing in that does not fit alone.
    CHECK(!running.empty());
    return false;
  }
  group.lead().started = group.lead().started_now = true;
  run(group);
  return true;
}

// Sequences of a group that came back: each takes what is cached when those before it have computed what the
// two share.
void Scheduler::Impl::start_members() {
  for (SequenceGroup* group : running) {
    for (Sequence* s : group->members) {
      if (s->started) continue;
      const PrefixMatch match = match_of(*s);
      if (waits_for_leader(*s, match, std::span(&group, 1))) continue;
      // Room for a copy is there when each sequence of the group can take a block all the same.
      int left = std::numeric_limits<int>::max();
      for (int g = 0; g < group_count(); ++g) left = std::min(left, blocks_left(g, match));
      start(*s, match, left - static_cast<int>(group->members.size()) - 1);
    }
  }
}

void Scheduler::Impl::start(Sequence& s, const PrefixMatch& match, int spare) {
  adopt_prefix(s, match);
  // A copy pins its source during the step: one block more than the sequence needs.
  if (match.partial_tokens > 0 && spare >= 1) adopt_partial(s, match);
  if (!s.group->was_admitted) s.cached_tokens = std::min(s.computed(), s.prompt_tokens);
  s.started = s.started_now = true;
}

BlockCounts Scheduler::Impl::peak_of(const SequenceGroup& group, Horizon horizon) const {
  const int growth = kGrowthBlocks * options.geometry.block_tokens;
  return peak_of({.prompt_tokens = group.prompt_tokens,
                  .tokens = horizon == Horizon::kEnd ? group.length_max() : group.length_soon(growth),
                  .sequences = group.sequences_expected()});
}

BlockCounts Scheduler::Impl::peak_of(GroupDemand demand) const {
  demand.policy = options.kv_policy;
  return group_peak_blocks(options.geometry, demand);
}

int Scheduler::Impl::blocks_left(int group, const PrefixMatch& match) const {
  const BlockPool& pool = *pools[static_cast<size_t>(group)];
  int left = pool.free_count() + pool.idle_count();
  for (PrefixNodeId node : match.path) {
    const BlockId block = tree.block(node, group);
    if (block != kNoBlock && pool.state(block) == BlockState::kIdle) --left;
  }
  return left;
}

AdmissionView Scheduler::Impl::view_of(const SequenceGroup& group, const PrefixMatch& match,
                                       Horizon horizon) const {
  AdmissionView view;
  view.wanted = peak_of(group, horizon);
  for (size_t g = 0; g < pools.size(); ++g) {
    const bool windowed = options.geometry.groups[g].window > 0;
    for (const SequenceGroup* r : running) {
      const int peak = peak_of(*r, horizon)[g];
      view.promised[g] += peak;
      if (!windowed) view.promised[g] -= std::min(blocks_of(*r, static_cast<int>(g)).held, peak);
    }
    if (windowed) {
      // Blocks come and go, and a shared one that one sequence drops is not free: weigh the peaks.
      view.available[g] = pools[g]->total() - options.pinned_blocks_max;
      continue;
    }
    // What pins may still take is nobody's.
    const int unpinned = options.pinned_blocks_max - pins.blocks_held_alone(static_cast<int>(g));
    view.available[g] = blocks_left(static_cast<int>(g), match) - unpinned;
    view.wanted[g] -= static_cast<int>(match.path.size());
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
                      .source = std::move(sources[g]),
                      .forked_from = {}});
  }
}

}  // namespace quire
