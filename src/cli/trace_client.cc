#include "cli/trace_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/bounded_queue.h"
#include "base/check.h"
#include "base/clock.h"

namespace quire {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;
using Arrivals = TraceClientOptions::Arrivals;

// How long to leave an overloaded engine alone.
constexpr Milliseconds kRetryAfter{1};
// How often the reader looks at its streams: seldom beside a step's length, often enough to leave in time.
constexpr Milliseconds kReadEvery{2};

// A request on its way.
struct SentRequest {
  TokenStream stream;
  int output_tokens = 0;    // wanted
  double submitted_ms = 0;  // since the beginning
  double waited_ms = 0;     // between its arrival and its submission
  int read_tokens = 0;
  double last_ms = 0;  // of the newest token, since submission
  bool ended = false;
};

// Two threads: the caller's sends, another reads all streams in turn, so that no answer piles up and none
// delays a submission. `answers_` belongs to the sender until the reader has ended, save what the reader
// alone writes: done, cached and output tokens, running_max, seconds and samples.
class TraceClient {
 public:
  TraceClient(Engine& engine, const RequestTrace& trace, const TraceClientOptions& options)
      : engine_(engine), trace_(trace), options_(options), ideal_(trace), sent_(trace.requests.size()) {}

  Result<TraceAnswers> run(FunctionRef<void(int64_t)> on_done) {
    begin_ns_ = clock_.now_ns();
    std::thread reader([&] { read_all(on_done); });
    Result<> sent;
    for (size_t i = 0; i < trace_.requests.size() && sent && !failed_; ++i) sent = send(i);
    all_sent_ = true;
    reader.join();
    TRY(std::move(sent));
    if (fault_) return std::unexpected(std::move(*fault_));
    return std::move(answers_);
  }

 private:
  [[nodiscard]] double now_ms() const { return static_cast<double>(clock_.now_ns() - begin_ns_) * 1e-6; }

  [[nodiscard]] Request request_of(size_t index) const {
    return {.prompt_token_ids = traced_prompt(trace_, index, engine_.model().vocab_size),
            .sampling = {.max_tokens = asked_tokens(trace_.requests[index], options_.asked,
                                                    engine_.model().context_length),
                         .ignore_eos = true}};
  }

  Result<> send(size_t index) {
    const Request request = request_of(index);
    const bool timed = options_.arrivals == Arrivals::kTimed;
    const double arrival_ms = timed ? trace_.requests[index].arrival_ms / options_.speed_up : 0;
    if (timed) std::this_thread::sleep_for(Milliseconds(arrival_ms - now_ms()));
    while (true) {
      const double submitted_ms = now_ms();
      auto stream = engine_.submit(request);
      if (stream) {
        answers_.prompt_tokens += trace_.requests[index].prompt_tokens;
        answers_.ideal_cached_tokens += ideal_.serve(index);
        // Without times a request arrives when it gets in.
        CHECK(sent_.try_push({.stream = std::move(*stream),
                              .output_tokens = trace_.requests[index].output_tokens,
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

  // Until all are sent and read, or one failed; what is left then is cancelled as it goes.
  void read_all(FunctionRef<void(int64_t)> on_done) {
    std::vector<SentRequest> open;
    while (!failed_) {
      const bool all_sent = all_sent_;
      while (auto request = sent_.try_pop()) open.push_back(std::move(*request));
      if (open.empty() && all_sent) return;
      for (SentRequest& request : open) read(request);
      const auto ended = std::erase_if(open, [](const SentRequest& request) { return request.ended; });
      answers_.requests_done += static_cast<int64_t>(ended);
      if (ended > 0) on_done(answers_.requests_done);
      answers_.running_max = std::max(answers_.running_max, engine_.stats().sequences_running);
      std::this_thread::sleep_for(kReadEvery);
    }
  }

  // What there is.
  void read(SentRequest& request) {
    while (auto event = request.stream.try_next()) {
      if (event->error) {
        fault_ = std::move(event->error);
        failed_ = true;
      }
      if (event->token_id && request.read_tokens < request.output_tokens) take_token(request, event->at_ms);
      if (event->finish == FinishReason::kNone) {
        if (request.read_tokens == request.output_tokens) request.stream.cancel();
        continue;
      }
      request.ended = true;
      answers_.seconds = std::max(answers_.seconds, (request.submitted_ms + request.last_ms) * 1e-3);
      answers_.cached_tokens += request.stream.summary().usage.cached_tokens;
    }
  }

  void take_token(SentRequest& request, double at_ms) {
    if (request.read_tokens == 0) {
      answers_.ttft_ms.add(request.waited_ms + at_ms);
    } else {
      answers_.gap_ms.add(at_ms - request.last_ms);
    }
    request.last_ms = at_ms;
    ++answers_.output_tokens;
    ++request.read_tokens;
  }

  Engine& engine_;
  const RequestTrace& trace_;
  const TraceClientOptions options_;
  InfiniteCache ideal_;
  BoundedQueue<SentRequest> sent_;
  const MonotonicClock clock_;
  int64_t begin_ns_ = 0;
  TraceAnswers answers_;
  std::atomic<bool> all_sent_{false};
  std::optional<Error> fault_;  // the reader's
  std::atomic<bool> failed_{false};
};

}  // namespace

Result<TraceAnswers> send_trace(Engine& engine, const RequestTrace& trace, const TraceClientOptions& options,
                                FunctionRef<void(int64_t)> on_done) {
  return TraceClient(engine, trace, options).run(on_done);
}

}  // namespace quire
