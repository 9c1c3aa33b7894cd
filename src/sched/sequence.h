// What the scheduler keeps of one living request and its sequences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kv/block_table.h"
#include "kv/radix_tree.h"
#include "sched/policy.h"
#include "sched/scheduler.h"

namespace quire {

struct SequenceGroup;

// Owned by the scheduler. Invariants: (1) computed() < tokens.size() while it may be planned; (2) `tip` is
// the tree's node of its last sealed block, held; (3) one that has not started has an empty table; one of a
// waiting group has not started.
struct Sequence {
  Sequence(SequenceRequest from, const KvGeometry& geometry, std::span<BlockPool* const> pools)
      : request(std::move(from)), tokens(std::move(request.prompt)), table(geometry, pools) {
    prompt_tokens = static_cast<int>(tokens.size());
  }
  Sequence(const Sequence& parent, const ForkRequest& fork)
      : request(parent.request),
        tokens(parent.tokens.begin(), parent.tokens.begin() + parent.computed()),
        table(parent.table.fork()),
        tip(parent.tip),
        group(parent.group),
        started(true),
        prompt_tokens(parent.prompt_tokens),
        cached_tokens(parent.cached_tokens),
        prompt_logits_done(parent.prompt_logits_done) {
    request.seq = fork.child;
    tokens.push_back(fork.token);
  }

  SequenceRequest request;      // its prompt has moved to `tokens`
  std::vector<TokenId> tokens;  // prompt and sampled
  BlockTable table;
  PrefixNodeId tip = kNoPrefixNode;
  SequenceGroup* group = nullptr;
  bool started = false;      // since its group runs: has taken from the cache what there was
  bool started_now = false;  // in the step that is planned
  int rows = 0;              // in the step that is planned
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int prompt_logits_done = 0;  // with PromptLogits::kAll

  [[nodiscard]] int known() const { return static_cast<int>(tokens.size()); }
  [[nodiscard]] int generated() const { return known() - prompt_tokens; }
  [[nodiscard]] int computed() const { return table.tokens_used(); }
  [[nodiscard]] int left_to_compute() const { return known() - computed(); }
  [[nodiscard]] bool wants_prompt_logits() const {
    return request.prompt_logits == PromptLogits::kAll && prompt_logits_done < prompt_tokens;
  }
  // How many of its tokens may come from the cache.
  [[nodiscard]] int reusable() const {
    return wants_prompt_logits() ? std::min(prompt_logits_done, known() - 1) : known() - 1;
  }
};

// The sequences of one request. Owned by the scheduler. Invariants: (1) at least one member; (2) members
// run or wait together; (3) between forks and the next step there may be more than sequences_max members.
struct SequenceGroup {
  std::vector<Sequence*> members;
  SeqId first;  // the sequence that it came with
  QueuePlace place;
  int priority = 0;
  int prompt_tokens = 0;
  int max_tokens = 0;
  int sequences_max = 1;
  GroupPace pace = GroupPace::kFree;
  SequenceState waiting_as = SequenceState::kWaiting;  // while it does not run
  bool running = false;
  bool admitted_now = false;  // in the step that is planned
  bool was_admitted = false;  // in an earlier, committed step
  int forks = 0;
  int preemptions = 0;
  int leader_waits = 0;  // steps that it has waited for others to compute its prefix
  int blocks_used_max = 0, blocks_as_copies_max = 0;

  [[nodiscard]] Sequence& lead() const { return *members.front(); }
  // Sequences that it has or may still have.
  [[nodiscard]] int sequences_expected() const {
    const bool grows = pace == GroupPace::kTogether || forks + 1 < sequences_max;
    return grows ? sequences_max : static_cast<int>(members.size());
  }
  [[nodiscard]] bool decodes_together() const { return pace == GroupPace::kTogether && members.size() > 1; }
  // The last sampled token is never computed.
  [[nodiscard]] int64_t length_max() const { return int64_t{prompt_tokens} + std::max(0, max_tokens - 1); }
  [[nodiscard]] int64_t length_soon(int growth_tokens) const {
    const auto known = [](const Sequence* s) { return s->known(); };
    const int longest = std::ranges::max(members, {}, known)->known();
    return std::min(length_max(), int64_t{longest} + growth_tokens);
  }
};

}  // namespace quire
