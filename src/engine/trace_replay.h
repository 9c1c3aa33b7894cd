// A trace replayed into a scheduler alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/request_trace.h"
#include "quire/engine.h"
#include "sched/scheduler.h"

namespace quire {

struct ReplayOptions {
  SchedulerOptions scheduler;
  int vocab_size = 0;
  AskedTokens asked = AskedTokens::kRecorded;
  int waiting_max = 256;  // requests before their first step; those beyond wait outside
  // Absent: a request comes as soon as there is room for it. Else when its time has come, a step lasting this
  // long.
  std::optional<double> step_ms{};
};

// The scheduler that an engine with these options would have, without its weights: sizes of blocks and pools
// come from the model's file. `options.context_length` may exceed what the model was made for. Errors: of the
// options, of the file, and kResourceExhausted when no block fits.
[[nodiscard]] Result<ReplayOptions> plan_replay(const EngineOptions& options);

// What came of it. Tokens are those of requests that were not refused.
struct ReplayFigures {
  int64_t requests_done = 0;
  int64_t requests_refused = 0;  // they could never fit
  std::optional<Error> first_refusal{};
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t ideal_cached_tokens = 0;  // prompt tokens that an infinite cache would have spared
  EngineStats stats;                // as an engine would give them
  int running_max = 0;
  std::vector<int> ttft_steps{};  // [request] from arrival to the first token
  std::vector<int> gap_steps{};   // [token after the first] since the one before it
};

// Plays requests into a real scheduler with its real prefix tree and pools; bookkeeping only. Nothing is
// computed: output tokens are hashes of request and place, and the number of steps is the only time.
//
// Owned by its caller, one thread. Invariants: (1) requests come in the trace's order; (2) every request is
// refused or gets exactly its output tokens. Cost: that of the scheduler, and O(prompt) a request.
class TraceReplay {
 public:
  // `trace` outlives the replay.
  TraceReplay(const RequestTrace& trace, ReplayOptions options);

  // One step; false when all requests are done.
  bool step();
  [[nodiscard]] ReplayFigures figures() const;
  [[nodiscard]] int64_t requests_ended() const { return figures_.requests_done + figures_.requests_refused; }

 private:
  struct Live {
    size_t request = 0;
    int output_tokens = 0;
    int64_t arrived_step = 0;
    int64_t token_step = 0;  // of the newest token
  };

  [[nodiscard]] bool next_has_arrived() const;
  void admit_arrivals();
  void admit(size_t request);
  void commit(const ScheduledStep& step);
  TokenId take_token(SeqId seq);
  void finish(SeqId seq);

  const RequestTrace& trace_;
  const ReplayOptions options_;
  Scheduler scheduler_;
  InfiniteCache ideal_;
  std::unordered_map<SeqId, Live> live_;
  size_t next_ = 0;  // request of the trace
  int64_t now_ = 0;  // steps, idle ones included
  ReplayFigures figures_;
};

}  // namespace quire
