// Where a scheduler's KV memory is, and what its cache has spared.
#pragma once

#include <array>
#include <cstdint>

#include "core/kv_geometry.h"

namespace quire {

// Use of one layer group's pool by running sequences. A slot is one token's place in a block.
struct KvUse {
  int64_t blocks_held = 0;       // a shared block counts once
  int64_t blocks_as_copies = 0;  // what they would be if no sequence shared with another
  int64_t slots_held = 0;        // of the blocks held
  int64_t slots_written = 0;     // of them: K and V of a token are there
  // Free slots in ranges too short for the request that waits first: only KvPolicy::kContiguous has any.
  int64_t slots_external_waste = 0;

  int64_t blocks_pinned_alone = 0;  // of pinned prefixes that no sequence holds: beside blocks_held

  [[nodiscard]] int64_t slots_internal_waste() const { return slots_held - slots_written; }
  KvUse& operator+=(const KvUse& other) {
    blocks_held += other.blocks_held;
    blocks_as_copies += other.blocks_as_copies;
    slots_held += other.slots_held;
    slots_written += other.slots_written;
    slots_external_waste += other.slots_external_waste;
    blocks_pinned_alone += other.blocks_pinned_alone;
    return *this;
  }
};

// All figures since the scheduler was made. Ratios of two step sums are averages over steps: internal waste
// is step_sums[g].slots_internal_waste() / step_sums[g].slots_held, mean concurrency
// running_sequences_sum / steps, duplicates avoided now[g].blocks_as_copies - now[g].blocks_held.
struct KvAccounting {
  int group_count = 0;
  std::array<KvUse, kLayerGroupsMax> now{};        // [group]
  std::array<KvUse, kLayerGroupsMax> step_sums{};  // [group]; `now` as each committed step ended, summed
  int64_t steps = 0;                               // committed ones with rows
  int64_t running_sequences_sum = 0;               // sequences that held blocks, summed over these steps
  int64_t requests_admitted = 0;                   // each once
  int64_t prompt_tokens = 0;                       // of them
  int64_t hit_tokens = 0;   // prompt tokens that were not computed at the first admission
  int64_t preemptions = 0;  // of requests
  int64_t evictions = 0;    // blocks that idle prefixes gave up for others
  int64_t copies = 0;       // blocks copied: hits within a block, and forks that write
};

}  // namespace quire
