// A scheduler's figures in the words of the public API.
#pragma once

#include "quire/engine.h"
#include "sched/scheduler.h"

namespace quire {

// Fills what EngineStats tells of sequences, preemptions, evictions, copies and pools. `geometry` is the
// scheduler's.
void fill_scheduler_stats(const Scheduler& scheduler, const KvGeometry& geometry, EngineStats& stats);

}  // namespace quire
