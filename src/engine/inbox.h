// What the door threads tell the engine thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "quire/engine.h"
#include "sched/scheduler.h"

namespace quire {

// A request that passed the door.
struct Submission {
  SequenceRequest sequence;
  SamplingParams sampling;
  uint64_t seed = 0;
  int n = 1;
  int best_of = 1;
  std::optional<BeamSearchParams> beam;
  std::optional<int> prompt_logprobs;
  std::shared_ptr<TokenStream::State> stream;
};

struct Cancellation {
  static constexpr int kAllChoices = -1;
  SeqId request;  // its first sequence
  int choice = kAllChoices;
};

// A prefix to pin, or a pin to let go; answered through `answer`.
struct PinOrder {
  std::vector<TokenId> tokens{};
  CacheScope scope{};
  int64_t ttl_ms = 0;
  std::optional<PinId> unpin{};
  std::promise<Result<PinId>> answer{};
};

// All that arrived since the last look, in order; a cancellation never comes before its submission.
struct InboxBatch {
  std::vector<Submission> submissions{};
  std::vector<Cancellation> cancellations{};
  std::vector<PinOrder> pin_orders{};
  enum class State : uint8_t { kOpen, kClosed } state = State::kOpen;
};

// Any thread submits and cancels; the engine thread takes. Shared with the streams, so that a stream may
// outlive its engine. Invariants: (1) waiting_count() <= capacity: requests that were submitted and have not
// left_queue(), whether they still lie here or were taken; (2) cancellations are never refused; a stream
// sends at most one for each choice and one for all, so they are bounded by the streams alive; (3) after
// close() submissions are refused.
class Inbox {
 public:
  explicit Inbox(int capacity) : capacity_(capacity) {}

  // Errors: kOverloaded with the limit; kCancelled when the engine is stopping.
  [[nodiscard]] Result<> submit(Submission submission);
  void cancel(const Cancellation& cancellation);
  // Answered when the engine thread has carried it out, or at once when it is stopping.
  [[nodiscard]] std::future<Result<PinId>> order_pin(PinOrder order);
  void close();

  // Takes what there is.
  [[nodiscard]] InboxBatch take();
  // Sleeps until there is something or it is closed.
  void wait();
  // `count` requests had their first step, or ended before it.
  void left_queue(int count);
  [[nodiscard]] int waiting_count() const;

 private:
  const int capacity_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  InboxBatch batch_;
  int waiting_count_ = 0;
};

}  // namespace quire
