// The engine thread: it owns kv, sched and model and beats the drum.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/inbox.h"
#include "engine/sampler.h"
#include "engine/token_stream.h"
#include "kv/kv_store.h"
#include "model/model.h"
#include "quire/engine.h"
#include "sched/scheduler.h"

namespace quire {

// What the loop works with; all of it outlives the loop.
struct EngineParts {
  ThreadPool* pool = nullptr;
  Model* model = nullptr;
  KvStore* kv = nullptr;
  Scheduler* scheduler = nullptr;
  Inbox* inbox = nullptr;
  const Clock* clock = nullptr;
  std::vector<TokenId> end_tokens{};
};

// run() is the body of the engine thread, and all but stats() belongs to it. Each beat: take the inbox, plan,
// copy blocks, forward, sample, commit, emit.
// Invariants: (1) every submission ends with exactly one final event; (2) when that is emitted, its blocks
// are back in the pools and stats() says so; (3) a fault of one request ends that request alone; (4) without
// requests the thread sleeps. Cost of a beat beside forward(): O(sequences of the step) and their sampling,
// which all members of the pool share when there is more than one row.
class EngineLoop {
 public:
  explicit EngineLoop(EngineParts parts);

  // Until the inbox is closed; then cancels all that lives and checks that no block is held.
  void run();

  // Any thread; never waits for a step.
  [[nodiscard]] EngineStats stats() const;

 private:
  struct LiveRequest {
    std::shared_ptr<TokenStream::State> stream;
    Sampler sampler;
    std::optional<int> prompt_logprobs;
    int prompt_tokens = 0;
    int max_tokens = 0;
    int output_tokens = 0;
    int64_t started_ns = 0;
  };
  // One row of logits and what is asked of it.
  struct RowJob {
    SeqId seq;
    LiveRequest* request = nullptr;
    int logits_row = 0;
    Position position = 0;          // of the token that the row follows
    std::optional<TokenId> next{};  // of the prompt
    bool wants_prompt_position = false;
    bool wants_token = false;
    PromptPosition prompt_position{};
    TokenChoice choice{};
    std::optional<Error> error{};
  };

  void admit(InboxBatch batch);
  void step();
  void note_started(const StepPlan& plan);
  [[nodiscard]] std::vector<RowJob> row_jobs(const ScheduledStep& step);
  void evaluate(std::vector<RowJob>& jobs, const LogitsView& logits);
  void evaluate_row(RowJob& job, std::span<const float> row, SamplerScratch& scratch) const;
  void commit(std::vector<RowJob>& jobs, std::span<const SeqId> completing);
  void emit_rows(std::span<RowJob> jobs);
  void emit_token(RowJob& job);
  void stamp(SeqId seq, const LiveRequest& request, StreamEvent& event) const;
  void end(SeqId seq, StreamEvent event);
  void publish();

  const EngineParts parts_;
  std::unordered_map<SeqId, LiveRequest> live_;
  std::vector<SamplerScratch> scratch_;  // [pool member]
  uint64_t steps_ = 0;

  mutable std::mutex stats_mutex_;
  EngineStats stats_;
};

}  // namespace quire
