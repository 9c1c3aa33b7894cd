// The one thing that the scheduler and the model exchange: which tokens run in this step, and where their
// K and V live.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/kv_geometry.h"

namespace quire {

// One sequence's part of a step: a chunk of prefill or one decode token; the model makes no difference.
//
// Invariants: (1) positions first_position … first_position + tokens.size() - 1 follow without a gap what the
// blocks already hold; (2) block_table[g][p / block_tokens] is a leased block of group g for every position p
// that a row of this step writes or may see; elsewhere it may be kNoBlock; (3) the spans stay valid until the
// step is committed.
struct PlannedSequence {
  SeqId seq;
  Position first_position = 0;
  std::span<const TokenId> tokens;
  // tokens[logits_from …] want logits; tokens.size() = none, tokens.size() - 1 = the last only.
  int logits_from = 0;
  std::array<std::span<const BlockId>, kLayerGroupsMax> block_table;
};

// All that runs in one step. Rows are numbered through the sequences in order.
struct StepPlan {
  std::vector<PlannedSequence> sequences;

  [[nodiscard]] int row_count() const;
  [[nodiscard]] int logit_row_count() const;
};

// The logits of a step: one row per wanted token, in plan order. Valid until the next forward().
struct LogitsView {
  std::span<const float> values;  // [logit_row, vocab]
  int vocab_size = 0;

  [[nodiscard]] int row_count() const {
    return vocab_size == 0 ? 0 : static_cast<int>(values.size() / vocab_size);
  }
  [[nodiscard]] std::span<const float> row(int index) const {
    return values.subspan(static_cast<size_t>(index) * vocab_size, vocab_size);
  }
};

}  // namespace quire
