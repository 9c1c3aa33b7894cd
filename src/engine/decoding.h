// What a request makes of its logits: the tokens that its sequences go on with, and its events.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "engine/beam_search.h"
#include "engine/sampler.h"
#include "engine/seq_ids.h"
#include "engine/token_stream.h"
#include "quire/engine.h"
#include "sched/scheduler.h"
#include "text/tokenizer.h"

namespace quire {

// One token, or one ranking of tokens, that a row of logits shall yield.
struct TokenJob {
  SeqId seq;
  int index = 0;          // which of the request's samples or beams
  Position position = 0;  // of the token
  TokenChoice choice{};   // of a sample
  BeamCandidates beam{};  // of a beam
  std::optional<Error> error{};
};

// What follows from a step, in the order in which it must be done: commit, forks, ends, events.
struct DecodingStep {
  std::vector<SampledToken> sampled{};
  std::vector<ForkRequest> forks{};
  std::vector<SeqId> ended{};
  std::vector<StreamEvent> events{};
};

// What a decoding is made of; tokenizer and ids outlive it.
struct DecodingStart {
  SeqId seq;  // that computes the prompt
  std::span<const TokenId> prompt{};
  std::span<const TokenId> end_tokens{};  // of the model
  SamplingParams sampling{};              // max_tokens >= 1
  uint64_t seed = 0;
  int n = 1;
  int best_of = 1;
  std::optional<BeamSearchParams> beam{};
  const Tokenizer* tokenizer = nullptr;
  SeqIds* ids = nullptr;
};

// The state of one request's answers. Owned by the engine thread, which calls all but evaluate(); evaluate()
// changes nothing but its job, so that the threads of a step may share the work. Knows neither scheduler nor
// stream: what it decides are values.
//
// Invariants: (1) every choice gets exactly one event with a finish; (2) ended and sampled name sequences
// that live, and a sequence that lives has a token to compute.
class Decoding {
 public:
  virtual ~Decoding() = default;

  // Appends what the last row of `seq` shall yield.
  virtual void add_jobs(SeqId seq, Position position, std::vector<TokenJob>& jobs) const = 0;
  virtual void evaluate(TokenJob& job, std::span<const float> row, SamplerScratch& scratch) const = 0;
  // The jobs of one step, none with an error. `now_ns`: when they were evaluated.
  [[nodiscard]] virtual DecodingStep advance(std::span<TokenJob> jobs, int64_t now_ns) = 0;
  // The reader wants no more of a choice.
  [[nodiscard]] virtual DecodingStep drop_choice(int choice) = 0;
  // Choices without a final event.
  [[nodiscard]] virtual std::vector<int> open_choices() const = 0;
};

[[nodiscard]] std::unique_ptr<Decoding> make_decoding(const DecodingStart& start);

// Watches for stop strings where nobody reads yet.
class StopWatch {
 public:
  StopWatch(const Tokenizer& tokenizer, const std::vector<std::string>& stops);
  // Takes the next token; whether a stop string is complete.
  bool push(TokenId token);

 private:
  const Tokenizer* tokenizer_;
  std::optional<Detokenizer> text_;  // absent without stop strings
};

}  // namespace quire
