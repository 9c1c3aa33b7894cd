#include "engine/token_stream.h"

#include <algorithm>
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
      open_choices_(start.choices) {
  for (int i = 0; i < start.choices; ++i)
    choices_.push_back({.detokenizer = Detokenizer(*tokenizer_, start.stops, TextPosition::kContinuation)});
  summary_.usage.prompt_tokens = start.prompt_tokens;
  summary_.choices.resize(choices_.size());
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

std::optional<StreamEvent> TokenStream::State::try_pop() {
  std::lock_guard lock(mutex_);
  if (queue_.empty()) return std::nullopt;
  std::optional<StreamEvent> event = std::move(queue_.front());
  queue_.pop_front();
  return event;
}

// Both pass over what the engine had under way for a choice that a stop string has ended.
std::optional<TokenEvent> TokenStream::State::next() {
  if (open_choices_ == 0) return std::nullopt;
  StreamEvent event = pop();
  while (choices_[static_cast<size_t>(event.choice)].finished) event = pop();
  return deliver(std::move(event));
}

std::optional<TokenEvent> TokenStream::State::try_next() {
  while (open_choices_ > 0) {
    std::optional<StreamEvent> event = try_pop();
    if (!event) return std::nullopt;
    if (!choices_[static_cast<size_t>(event->choice)].finished) return deliver(std::move(*event));
  }
  return std::nullopt;
}

TokenEvent TokenStream::State::deliver(StreamEvent event) {
  account(event);
  TokenEvent out;
  out.at_ms = milliseconds(event.at_ns - submitted_ns_);
  out.choice = event.choice;
  out.token_id = event.token;
  out.finish = event.finish;
  add_text(event, out);
  out.logprob = event.logprob;
  out.top_logprobs = std::move(event.top_logprobs);
  out.prompt_positions = std::move(event.prompt_positions);
  if (out.finish != FinishReason::kNone) finish_choice(event, out.finish);
  out.error = std::move(event.error);
  return out;
}

void TokenStream::State::add_text(const StreamEvent& event, TokenEvent& out) {
  Detokenizer& detokenizer = choices_[static_cast<size_t>(event.choice)].detokenizer;
  // A model may have more output rows than its vocabulary has tokens: those stand for no text.
  if (event.token && event.text == StreamEvent::Text::kShown && *event.token < tokenizer_->vocab_size()) {
    out.text = detokenizer.push(*event.token);
    if (detokenizer.stopped()) {
      out.finish = FinishReason::kStop;
      return;
    }
  }
  if (event.finish != FinishReason::kNone) out.text += detokenizer.finish();
}

void TokenStream::State::finish_choice(const StreamEvent& event, FinishReason finish) {
  choices_[static_cast<size_t>(event.choice)].finished = true;
  ChoiceSummary& choice = summary_.choices[static_cast<size_t>(event.choice)];
  choice.finish = finish;
  if (event.score) {
    choice.score = event.score->score;
    choice.logprob_sum = event.score->logprob_sum;
  }
  if (--open_choices_ == 0) close();
  if (event.finish != FinishReason::kNone) return;
  // The engine does not know of the stop string.
  if (open_choices_ == 0) {
    cancel();
  } else {
    inbox_->cancel({.request = seq_, .choice = event.choice});
  }
}

void TokenStream::State::account(const StreamEvent& event) {
  RequestTimings& timings = summary_.timings;
  summary_.kv = event.kv;
  summary_.usage.cached_tokens = event.cached_tokens;
  started_ns_ = event.started_ns;
  // Of choices that were held back, tokens come out of their order in time.
  timings.total_ms = std::max(timings.total_ms, milliseconds(event.at_ns - submitted_ns_));
  timings.queue_ms = milliseconds((started_ns_ > 0 ? started_ns_ : event.at_ns) - submitted_ns_);
  const bool ends_prompt = event.token || event.finish == FinishReason::kLength;
  if (first_token_ns_ == 0 && ends_prompt) {
    first_token_ns_ = event.at_ns;
    timings.prefill_tokens_per_s =
        per_second(summary_.usage.prompt_tokens - summary_.usage.cached_tokens, event.at_ns - started_ns_);
    if (event.token) timings.ttft_ms = milliseconds(event.at_ns - submitted_ns_);
  }
  if (event.token) account_token(event);
}

void TokenStream::State::account_token(const StreamEvent& event) {
  ++summary_.usage.completion_tokens;
  ChoiceSummary& choice = summary_.choices[static_cast<size_t>(event.choice)];
  if (++choice.completion_tokens > 1) ++tokens_after_first_;
  last_token_ns_ = std::max(last_token_ns_, event.at_ns);
  summary_.timings.decode_tokens_per_s = per_second(tokens_after_first_, last_token_ns_ - first_token_ns_);
}

void TokenStream::State::cancel() {
  if (!cancelled_.exchange(true)) inbox_->cancel({.request = seq_});
}

void TokenStream::State::abandon() {
  if (open_choices_ > 0) cancel();
  open_choices_ = 0;
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
std::optional<TokenEvent> TokenStream::try_next() {
  return state_->try_next();
}
void TokenStream::cancel() {
  state_->cancel();
}
RequestSummary TokenStream::summary() const {
  return state_->summary();
}

}  // namespace quire
