// n samples, or the best n of more.
#pragma once

#include <vector>

#include "engine/decoding.h"

namespace quire {

// The prompt's last row yields the first token of every sample; those that go on are forks of the sequence
// that computed the prompt. When more are sampled than returned, events are held back until all have ended.
// Invariant: sample i is what a request of its own with seed + i would yield.
class SampleDecoding final : public Decoding {
 public:
  explicit SampleDecoding(const DecodingStart& start);

  void add_jobs(SeqId seq, Position position, std::vector<TokenJob>& jobs) const override;
  void evaluate(TokenJob& job, std::span<const float> row, SamplerScratch& scratch) const override;
  [[nodiscard]] DecodingStep advance(std::span<TokenJob> jobs, int64_t now_ns) override;
  [[nodiscard]] DecodingStep drop_choice(int choice) override;
  [[nodiscard]] std::vector<int> open_choices() const override;

 private:
  struct Sample {
    SeqId seq;  // once it lives
    Sampler sampler;
    StopWatch stop_watch;  // of those that are ranked
    int tokens = 0;
    enum class State : uint8_t { kOpen, kEnded } state = State::kOpen;
    double logprob_sum = 0;
    std::vector<StreamEvent> held{};

    [[nodiscard]] double mean_logprob() const { return logprob_sum / tokens; }
  };
  [[nodiscard]] bool is_ranked() const { return static_cast<int>(samples_.size()) > n_; }
  [[nodiscard]] StreamEvent take_token(Sample& sample, TokenJob& job);
  void emit_best(DecodingStep& step);

  const int n_;
  const int max_tokens_;
  const bool shows_logprobs_;
  SeqIds& ids_;
  bool forked_ = false;
  std::vector<Sample> samples_;  // [best_of]
};

}  // namespace quire
