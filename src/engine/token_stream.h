// The two ends of an answer: the engine thread pushes, one door thread reads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "engine/inbox.h"
#include "quire/engine.h"
#include "text/detokenizer.h"

namespace quire {

// What a choice was ranked by.
struct ChoiceScore {
  double score = 0;
  double logprob_sum = 0;
};

// One event as the engine thread knows it: without text.
struct StreamEvent {
  int choice = 0;
  std::optional<TokenId> token{};
  enum class Text : uint8_t { kShown, kHidden } text = Text::kShown;  // kHidden: a token that ends the answer
  std::optional<TokenLogprob> logprob{};
  std::vector<TokenLogprob> top_logprobs{};
  std::vector<PromptPosition> prompt_positions{};
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error{};
  std::optional<ChoiceScore> score{};  // with a finish
  int64_t at_ns = 0;
  int64_t started_ns = 0;  // its first step; 0 = not yet
  int cached_tokens = 0;
  RequestKv kv{};
};

// What a stream is made of.
struct StreamStart {
  SeqId seq;
  std::shared_ptr<Inbox> inbox;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<std::string> stops;
  int choices = 1;
  int prompt_tokens = 0;
  int64_t submitted_ns = 0;
};

// Shared by the TokenStream and the engine. push() by the engine thread; next(), try_next() and summary() by
// the one reader; cancel() by any thread. Invariants: (1) the reader sees the events of a choice in order,
// the last one with a finish; (2) nothing is queued after the last choice's, so the queue holds at most
// (prompt + max_tokens + 1) * choices events; (3) detokenising and stop strings run on the reader's thread
// and see the tokens of a choice in order. Locks: only around the queue.
class TokenStream::State {
 public:
  explicit State(StreamStart start);

  void push(StreamEvent event);
  std::optional<TokenEvent> next();
  std::optional<TokenEvent> try_next();
  void cancel();
  // The reader goes away.
  void abandon();
  [[nodiscard]] RequestSummary summary() const;

 private:
  struct Choice {
    Detokenizer detokenizer;
    bool finished = false;
  };
  StreamEvent pop();
  std::optional<StreamEvent> try_pop();
  TokenEvent deliver(StreamEvent event);
  void close();
  void account(const StreamEvent& event);
  void account_token(const StreamEvent& event);
  void add_text(const StreamEvent& event, TokenEvent& out);
  void finish_choice(const StreamEvent& event, FinishReason finish);

  const SeqId seq_;
  const std::shared_ptr<Inbox> inbox_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const int64_t submitted_ns_;
  std::atomic<bool> cancelled_{false};

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<StreamEvent> queue_;
  bool closed_ = false;  // nothing more is wanted

  // The reader's.
  std::vector<Choice> choices_;
  int open_choices_;
  RequestSummary summary_;
  int tokens_after_first_ = 0;  // of each choice
  int64_t started_ns_ = 0, first_token_ns_ = 0, last_token_ns_ = 0;
};

}  // namespace quire
