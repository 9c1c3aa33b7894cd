// The best n of a beam search.
#pragma once

#include <vector>

#include "engine/beam_search.h"
#include "engine/decoding.h"

namespace quire {

// A beam is a sequence of the scheduler: one that goes on with several tokens is forked, one without a
// successor ends. Nothing is emitted before the search is over.
class BeamDecoding final : public Decoding {
 public:
  explicit BeamDecoding(const DecodingStart& start);

  void add_jobs(SeqId seq, Position position, std::vector<TokenJob>& jobs) const override;
  void evaluate(TokenJob& job, std::span<const float> row, SamplerScratch& scratch) const override;
  [[nodiscard]] DecodingStep advance(std::span<TokenJob> jobs, int64_t now_ns) override;
  [[nodiscard]] DecodingStep drop_choice(int choice) override;
  [[nodiscard]] std::vector<int> open_choices() const override;

 private:
  struct Beam {
    SeqId seq;
    Sampler sampler;
    StopWatch stop_watch;
  };
  void move_beams(std::span<const BeamMove> moves, DecodingStep& step);
  void emit(DecodingStep& step);
  void emit_result(int choice, BeamResult result, DecodingStep& step) const;

  const int n_;
  const std::optional<int> logprobs_;
  const int candidates_;
  SeqIds& ids_;
  const Sampler at_start_;  // of no token yet
  BeamSearch search_;
  std::vector<Beam> beams_;           // as search_ numbers them
  std::vector<int64_t> computed_ns_;  // [generated token]
  bool emitted_ = false;
};

}  // namespace quire
