#include "engine/token_stream.h"

#include <utility>

#include "base/check.h"

namespace quire {
namespace {

double milliseconds(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

double per_second(int count, int64_t ns) {
  return ns > 0 ? static_cast<double>(count) * 1e9 / static_cast<double>(ns) : 0;
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  UNREACHABLE();
}

TokenStream::State::State(StreamStart start)
    : seq_(start.seq),
      inbox_(std::move(start.inbox)),
      tokenizer_(std::move(start.tokenizer)),
      submitted_ns_(start.submitted_ns),
      detokenizer_(*tokenizer_, std::move(start.stops), TextPosition::kContinuation) {
  summary_.usage.prompt_tokens = start.prompt_tokens;
}

void TokenStream::State::push(StreamEvent event) {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  queue_.push_back(std::move(event));
  arrived_.notify_one();
}

StreamEvent TokenStream::State::pop() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !queue_.empty(); });
  StreamEvent event = std::move(queue_.front());
  queue_.pop_front();
  return event;
}

void TokenStream::State::close() {
  std::deque<StreamEvent> dropped;
  std::lock_guard lock(mutex_);
  closed_ = true;
  queue_.swap(dropped);
}

std::optional<TokenEvent> TokenStream::State::next() {
  if (finished_) return std::nullopt;
  StreamEvent event = pop();
  account(event);
  TokenEvent out;
  out.at_ms = milliseconds(event.at_ns - submitted_ns_);
  out.token_id = event.token;
  out.finish = event.finish;
  add_text(event, out);
  out.logprob = event.logprob;
  out.top_logprobs = std::move(event.top_logprobs);
  out.prompt_positions = std::move(event.prompt_positions);
  out.error = std::move(event.error);
  if (out.finish != FinishReason::kNone) {
    finished_ = true;
    close();
  }
  return out;
}

void TokenStream::State::add_text(const StreamEvent& event, TokenEvent& out) {
  // A model may have more output rows than its vocabulary has tokens: those stand for no text.
  if (event.token && event.text == StreamEvent::Text::kShown && *event.token < tokenizer_->vocab_size()) {
    out.text = detokenizer_.push(*event.token);
    if (detokenizer_.stopped()) {
      if (event.finish == FinishReason::kNone) cancel();
      out.finish = FinishReason::kStop;
      return;
    }
  }
  if (event.finish != FinishReason::kNone) out.text += detokenizer_.finish();
}

void TokenStream::State::account(const StreamEvent& event) {
  Usage& usage = summary_.usage;
  RequestTimings& timings = summary_.timings;
  summary_.kv = event.kv;
  usage.cached_tokens = event.cached_tokens;
  started_ns_ = event.started_ns;
  timings.total_ms = milliseconds(event.at_ns - submitted_ns_);
  timings.queue_ms = milliseconds((started_ns_ > 0 ? started_ns_ : event.at_ns) - submitted_ns_);
  const bool ends_prompt = event.token || event.finish == FinishReason::kLength;
  if (first_token_ns_ == 0 && ends_prompt) {
    first_token_ns_ = event.at_ns;
    timings.prefill_tokens_per_s =
        per_second(usage.prompt_tokens - usage.cached_tokens, event.at_ns - started_ns_);
    if (event.token) timings.ttft_ms = timings.total_ms;
  }
  if (event.token) {
    ++usage.completion_tokens;
    last_token_ns_ = event.at_ns;
    timings.decode_tokens_per_s = per_second(usage.completion_tokens - 1, last_token_ns_ - first_token_ns_);
  }
}

void TokenStream::State::cancel() {
  if (!cancelled_.exchange(true)) inbox_->cancel(seq_);
}

void TokenStream::State::abandon() {
  if (!finished_) cancel();
  finished_ = true;
  close();
}

RequestSummary TokenStream::State::summary() const {
  return summary_;
}

TokenStream::TokenStream(std::shared_ptr<State> state) : state_(std::move(state)) {}
TokenStream::TokenStream(TokenStream&&) noexcept = default;

TokenStream& TokenStream::operator=(TokenStream&& other) noexcept {
  if (this != &other) {
    if (state_) state_->abandon();
    state_ = std::move(other.state_);
  }
  return *this;
}

TokenStream::~TokenStream() {
  if (state_) state_->abandon();
}

std::optional<TokenEvent> TokenStream::next() {
  return state_->next();
}
void TokenStream::cancel() {
  state_->cancel();
}
RequestSummary TokenStream::summary() const {
  return state_->summary();
}

}  // namespace quire
