// The choice of the next token from one row of logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "engine/logit_row.h"
#include "quire/engine.h"

namespace quire {

// Errors: kInvalidArgument with field, value and limit.
[[nodiscard]] Result<> validate_sampling(const SamplingParams& params, int vocab_size);

// The error for a row that cannot be sampled; `position`: where its token would stand.
[[nodiscard]] Result<> check_row(LogitRow::Fault fault, Position position);

struct TokenChoice {
  TokenId id = 0;
  std::optional<TokenLogprob> logprob{};  // when asked for
  std::vector<TokenLogprob> top;
};

// A token among the most probable ones of a row.
struct RankedToken {
  TokenId id = 0;
  double logprob = 0;     // after bias, penalties and min_tokens
  float raw_logprob = 0;  // of the unmodified distribution
};

// The buffers of one sampling thread: they grow with the first row that needs them and are reused.
struct SamplerScratch {
  struct Candidate {
    double weight = 0;  // proportional to its probability
    double rank = 0;    // what the filter at work sorts by, ascending
    TokenId id = 0;
  };
  LogitRow raw, adjusted;
  std::vector<float> logits;
  std::vector<double> weights;
  std::vector<Candidate> candidates;
};

// What is asked of Sampler::rank().
struct RankWanted {
  Position position = 0;  // of the token
  int count = 1;
};

// What a sampler needs to know of its request besides the parameters.
struct SamplerStart {
  std::span<const TokenId> prompt{};      // for the repetition penalty
  std::span<const TokenId> end_tokens{};  // of the model: they end an answer unless ignore_eos
  uint64_t seed = 0;
};

// The sampling state of one sequence. Owned by the engine thread.
//
// Invariants: (1) the token depends on the row, the parameters, the tokens so far, the seed and the position
// alone; (2) every filter sees the distribution renormalised over what the filter before it left, and leaves
// at least one token; (3) the draw runs through the survivors by rising id, so the route by which they were
// found does not matter. Cost: greedy without logprobs is one pass over the row; with top_k two passes and a
// sort of the survivors; top_p and min_p alone never sort the whole row.
class Sampler {
 public:
  Sampler(const SamplingParams& params, const SamplerStart& start);

  // The token for place `position` of the sequence. Error kInternal when the row holds NaN or +inf, or no
  // possible token.
  [[nodiscard]] Result<TokenChoice> sample(std::span<const float> logits, Position position,
                                           SamplerScratch& scratch) const;
  // Instead of a choice the `count` most probable tokens (fewer when fewer are possible), best first, ties by
  // rising id. Errors like sample().
  [[nodiscard]] Result<std::vector<RankedToken>> rank(std::span<const float> logits, RankWanted wanted,
                                                      SamplerScratch& scratch) const;
  // Records it as the next token of the output.
  void accept(TokenId id);
  // Whether `id` ends the answer.
  [[nodiscard]] bool is_end(TokenId id) const;

 private:
  // A token whose logit differs from the model's; sorted by id.
  struct Adjustment {
    TokenId id = 0;
    float bias = 0;
    int output_count = 0;
    bool in_prompt = false;
  };
  Adjustment& adjustment(TokenId id);
  // The row that tokens are drawn from; `logits` itself stays in scratch.raw.
  [[nodiscard]] Result<LogitRow*> adjusted_row(std::span<const float> logits, Position position,
                                               SamplerScratch& scratch) const;
  [[nodiscard]] bool adjusts() const;
  void adjust(std::span<float> logits) const;
  [[nodiscard]] TokenId draw(SamplerScratch& scratch, double uniform) const;
  void gather_candidates(SamplerScratch& scratch, double total) const;
  void filter_candidates(std::vector<SamplerScratch::Candidate>& candidates, double total) const;

  SamplingParams params_;
  uint64_t seed_;
  std::vector<TokenId> ends_;  // sorted
  std::vector<Adjustment> adjustments_;
  int output_tokens_ = 0;
};

// The `count` best tokens of a scanned row with their log-probabilities, best first.
[[nodiscard]] std::vector<TokenLogprob> top_logprobs(LogitRow& row, double logsumexp, int count);

}  // namespace quire
