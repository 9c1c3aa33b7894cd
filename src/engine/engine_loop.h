// The engine thread: it owns kv, sched and model and beats the drum.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "core/step_plan.h"
#include "engine/decoding.h"
#include "engine/inbox.h"
#include "engine/sampler.h"
#include "engine/seq_ids.h"
#include "engine/token_stream.h"
#include "kv/kv_store.h"
#include "quire/engine.h"
#include "sched/scheduler.h"

namespace quire {

// What the loop works with; all of it outlives the loop.
struct EngineParts {
  ThreadPool* pool = nullptr;
  // The model: writes K and V of the plan's rows, returns the logits that it wants.
  std::function<LogitsView(const StepPlan&, KvStore&)> forward{};
  KvStore* kv = nullptr;
  Scheduler* scheduler = nullptr;
  Inbox* inbox = nullptr;
  const Clock* clock = nullptr;
  const Tokenizer* tokenizer = nullptr;
  SeqIds* seq_ids = nullptr;
  std::vector<TokenId> end_tokens{};
};

// run() is the body of the engine thread, and all but stats() belongs to it. Each beat: take the inbox, plan,
// copy blocks, forward, sample, commit, emit. Whoever has no thread for it calls beat() himself.
// Invariants: (1) every choice of a submission ends with exactly one final event; (2) when that is emitted,
// the blocks of what has ended are back in the pools and stats() says so; (3) a fault of one request ends
// that request alone; (4) without requests the thread sleeps. Cost of a beat beside forward(): O(sequences of
// the step) and their sampling, which all members of the pool share when there is more than one row.
class EngineLoop {
 public:
  explicit EngineLoop(EngineParts parts);

  // Beats until the inbox is closed; sleeps while nothing lives.
  void run();
  // One beat; never sleeps. False when the inbox was closed: then all that lived is cancelled, and checked
  // that no block is held.
  bool beat();

  // Any thread; never waits for a step.
  [[nodiscard]] EngineStats stats() const;

 private:
  // From its submission to its last final event.
  struct LiveRequest {
    SeqId seq;  // the sequence that computes the prompt; names the request even when it has ended
    std::shared_ptr<TokenStream::State> stream;
    std::unique_ptr<Decoding> decoding;
    std::vector<SeqId> sequences;  // that live
    std::optional<int> prompt_logprobs;
    int prompt_tokens = 0;
    int max_tokens = 0;
    int64_t started_ns = 0;
    int cached_tokens = 0;
    RequestKv kv{};
  };
  // One row of logits that somebody wants something of: a prompt position, tokens, or both.
  struct RowJob {
    LiveRequest* request = nullptr;
    int logits_row = 0;
    Position position = 0;          // of the token that the row follows
    std::optional<TokenId> next{};  // of the prompt
    enum class Kind : uint8_t { kPromptPosition, kToken } kind = Kind::kToken;
    PromptPosition prompt_position{};
    TokenJob token{};
    std::optional<Error> error{};
  };
  // What a request's rows of one step led to.
  struct Outcome {
    LiveRequest* request = nullptr;
    std::vector<PromptPosition> prompt_positions{};
    std::vector<TokenJob> jobs{};
    DecodingStep step{};
    std::optional<Error> error{};
    enum class Prompt : uint8_t { kGoesOn, kEndsRequest } prompt = Prompt::kGoesOn;  // with max_tokens = 0
  };

  void admit(InboxBatch batch);
  void cancel(const Cancellation& cancellation);
  [[nodiscard]] Result<PinId> carry_out(const PinOrder& order);
  void step();
  void note_started(const StepPlan& plan);
  [[nodiscard]] std::vector<RowJob> row_jobs(const ScheduledStep& step);
  void evaluate(std::vector<RowJob>& jobs, const LogitsView& logits);
  void evaluate_row(RowJob& job, std::span<const float> row, SamplerScratch& scratch) const;
  [[nodiscard]] std::vector<Outcome> outcomes(std::vector<RowJob>& jobs, const ScheduledStep& step);
  void commit(std::vector<Outcome>& outcomes);
  void follow(LiveRequest& request, const DecodingStep& step);
  void end(LiveRequest& request);
  void refresh(LiveRequest& request);
  void emit(LiveRequest& request, std::vector<StreamEvent> events);
  void end_open_choices(LiveRequest& request, const StreamEvent& last);
  void publish();

  const EngineParts parts_;
  std::unordered_map<SeqId, std::unique_ptr<LiveRequest>> live_;  // by LiveRequest::seq
  std::unordered_map<SeqId, LiveRequest*> sequences_;             // that live
  std::vector<SamplerScratch> scratch_;                           // [pool member]
  EngineStats counted_;                                           // its sums since the start

  mutable std::mutex stats_mutex_;
  EngineStats stats_;
};

}  // namespace quire
