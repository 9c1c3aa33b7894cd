// What the scheduler keeps of one living sequence.
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

// Owned by the scheduler. Invariants: (1) computed() < tokens.size() while it may be planned; (2) `tip` is
// the tree's node of its last sealed block, held; (3) a waiting one has an empty table.
struct Sequence {
  Sequence(SequenceRequest from, const KvGeometry& geometry, std::span<BlockPool* const> pools)
      : request(std::move(from)), tokens(std::move(request.prompt)), table(geometry, pools) {
    prompt_tokens = static_cast<int>(tokens.size());
  }

  SequenceRequest request;      // its prompt has moved to `tokens`
  std::vector<TokenId> tokens;  // prompt and sampled
  BlockTable table;
  PrefixNodeId tip = kNoPrefixNode;
  QueuePlace place;
  SequenceState waiting_as = SequenceState::kWaiting;  // while it does not run
  bool running = false;
  bool admitted_now = false;  // in the step that is planned
  bool was_admitted = false;  // in an earlier, committed step
  int rows = 0;               // in the step that is planned
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int preemptions = 0;
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
  // The last sampled token is never computed.
  [[nodiscard]] int64_t length_max() const {
    return int64_t{prompt_tokens} + std::max(0, request.max_tokens - 1);
  }
  [[nodiscard]] int64_t length_soon(int growth_tokens) const {
    return std::min(length_max(), int64_t{known()} + growth_tokens);
  }
};

}  // namespace quire
