#include "cli/trace_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "base/bounded_queue.h"
#include "base/check.h"
#include "base/clock.h"

namespace quire {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

// How long to leave an overloaded engine alone.
constexpr Milliseconds kRetryAfter{1};

// A request on its way.
struct SentRequest {
  TokenStream stream;
  double submitted_ms = 0;  // since the beginning
  double waited_ms = 0;     // between its arrival and its submission
};

// Two threads: the caller's sends, another reads, so that no answer piles up and none delays a submission.
// `answers_` belongs to the sender until the reader has ended, save what the reader alone writes: done,
// cached and output tokens, seconds and samples.
class TraceClient {
 public:
  TraceClient(Engine& engine, const RequestTrace& trace, const ArrivalPace& pace)
      : engine_(engine), trace_(trace), pace_(pace), ideal_(trace), sent_(trace.requests.size()) {}

  Result<TraceAnswers> run(FunctionRef<void(int64_t)> on_done) {
    begin_ns_ = clock_.now_ns();
    std::thread reader([&] { read_all(on_done); });
    Result<> sent;
    for (size_t i = 0; i < trace_.requests.size() && sent && !failed_; ++i) sent = send(i);
    sent_.close();
    reader.join();
    TRY(std::move(sent));
    if (fault_) return std::unexpected(std::move(*fault_));
    return std::move(answers_);
  }

 private:
  [[nodiscard]] double now_ms() const { return static_cast<double>(clock_.now_ns() - begin_ns_) * 1e-6; }

  Result<> send(size_t index) {
    const TracedRequest& traced = trace_.requests[index];
    Request request{.prompt_token_ids = traced_prompt(trace_, index, engine_.model().vocab_size),
                    .sampling = {.max_tokens = traced.output_tokens, .ignore_eos = true}};
    double arrival_ms = now_ms();
    if (pace_.kind == ArrivalPace::Kind::kTimed) {
      arrival_ms = traced.arrival_ms / pace_.speed_up;
      std::this_thread::sleep_for(Milliseconds(arrival_ms - now_ms()));
    }
    while (true) {
      const double submitted_ms = now_ms();
      auto stream = engine_.submit(request);
      if (stream) {
        answers_.prompt_tokens += traced.prompt_tokens;
        answers_.ideal_cached_tokens += ideal_.serve(index);
        // Without times a request arrives when it gets in.
        const bool timed = pace_.kind == ArrivalPace::Kind::kTimed;
        CHECK(sent_.try_push({.stream = std::move(*stream),
                              .submitted_ms = submitted_ms,
                              .waited_ms = timed ? submitted_ms - arrival_ms : 0}));
        return {};
      }
      if (stream.error().code == ErrorCode::kResourceExhausted) {
        ++answers_.requests_refused;
        if (!answers_.first_refusal) answers_.first_refusal = std::move(stream.error());
        return {};
      }
      if (stream.error().code != ErrorCode::kOverloaded) return std::unexpected(std::move(stream.error()));
      std::this_thread::sleep_for(kRetryAfter);
    }
  }

  void read_all(FunctionRef<void(int64_t)> on_done) {
    while (auto request = sent_.pop()) {
      if (failed_) continue;  // those that are left are cancelled as they go
      read(*request);
      on_done(++answers_.requests_done);
    }
  }

  void read(SentRequest& request) {
    double last_ms = -1;
    while (auto event = request.stream.next()) {
      if (event->error) {
        fault_ = std::move(event->error);
        failed_ = true;
      }
      if (!event->token_id) continue;
      if (last_ms < 0) {
        answers_.ttft_ms.add(request.waited_ms + event->at_ms);
      } else {
        answers_.gap_ms.add(event->at_ms - last_ms);
      }
      last_ms = event->at_ms;
      ++answers_.output_tokens;
    }
    answers_.seconds = std::max(answers_.seconds, (request.submitted_ms + last_ms) * 1e-3);
    answers_.cached_tokens += request.stream.summary().usage.cached_tokens;
  }

  Engine& engine_;
  const RequestTrace& trace_;
  const ArrivalPace pace_;
  InfiniteCache ideal_;
  BoundedQueue<SentRequest> sent_;
  const MonotonicClock clock_;
  int64_t begin_ns_ = 0;
  TraceAnswers answers_;
  std::optional<Error> fault_;  // the reader's
  std::atomic<bool> failed_{false};
};

}  // namespace

Result<TraceAnswers> send_trace(Engine& engine, const RequestTrace& trace, const ArrivalPace& pace,
                                FunctionRef<void(int64_t)> on_done) {
  return TraceClient(engine, trace, pace).run(on_done);
}

}  // namespace quire
