#include "engine/beam_decoding.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

BeamDecoding::BeamDecoding(const DecodingStart& start)
    : n_(start.n),
      logprobs_(start.sampling.logprobs),
      candidates_(2 * start.beam->width +
                  static_cast<int>(start.end_tokens.size() + start.sampling.stop_token_ids.size())),
      ids_(*start.ids),
      at_start_(start.sampling, {.prompt = start.prompt, .end_tokens = start.end_tokens, .seed = start.seed}),
      search_(*start.beam, start.sampling.max_tokens) {
  beams_.push_back({.seq = start.seq,
                    .sampler = at_start_,
                    .stop_watch = StopWatch(*start.tokenizer, start.sampling.stop)});
}

void BeamDecoding::add_jobs(SeqId seq, Position position, std::vector<TokenJob>& jobs) const {
  const auto beam = std::ranges::find(beams_, seq, &Beam::seq);
  CHECK(beam != beams_.end());
  jobs.push_back({.seq = seq, .index = static_cast<int>(beam - beams_.begin()), .position = position});
}

void BeamDecoding::evaluate(TokenJob& job, std::span<const float> row, SamplerScratch& scratch) const {
  const Sampler& sampler = beams_[static_cast<size_t>(job.index)].sampler;
  auto ranked = sampler.rank(row, {.position = job.position, .count = candidates_}, scratch);
  if (!ranked) {
    job.error = std::move(ranked.error());
    return;
  }
  job.beam.ranked = std::move(*ranked);
  if (logprobs_ && *logprobs_ > 0)
    job.beam.top = top_logprobs(scratch.raw, scratch.raw.logsumexp(), *logprobs_);
}

DecodingStep BeamDecoding::advance(std::span<TokenJob> jobs, int64_t now_ns) {
  DecodingStep step;
  // All beams are computed in one step (GroupPace::kTogether).
  CHECK(jobs.size() == beams_.size());
  std::vector<BeamCandidates> candidates(beams_.size());
  for (TokenJob& job : jobs) candidates[static_cast<size_t>(job.index)] = std::move(job.beam);
  computed_ns_.push_back(now_ns);
  const std::vector<BeamMove> moves = search_.advance(candidates, [this](int beam, TokenId token) {
    const Beam& from = beams_[static_cast<size_t>(beam)];
    return from.sampler.is_end(token) || StopWatch(from.stop_watch).push(token);
  });
  move_beams(moves, step);
  if (moves.empty()) emit(step);
  return step;
}

// The first successor of a beam keeps its sequence.
void BeamDecoding::move_beams(std::span<const BeamMove> moves, DecodingStep& step) {
  std::vector<bool> goes_on(beams_.size());
  std::vector<Beam> next;
  for (const BeamMove& move : moves) {
    const auto parent = static_cast<size_t>(move.parent);
    Beam& beam = next.emplace_back(beams_[parent]);
    beam.sampler.accept(move.token);
    beam.stop_watch.push(move.token);
    if (goes_on[parent]) {
      beam.seq = ids_.next();
      step.forks.push_back({.parent = beams_[parent].seq, .child = beam.seq, .token = move.token});
    } else {
      step.sampled.push_back({.seq = beam.seq, .token = move.token});
      goes_on[parent] = true;
    }
  }
  for (size_t b = 0; b < beams_.size(); ++b)
    if (!goes_on[b]) step.ended.push_back(beams_[b].seq);
  beams_.swap(next);
}

void BeamDecoding::emit(DecodingStep& step) {
  emitted_ = true;
  std::vector<BeamResult> results = search_.results();
  for (int choice = 0; choice < n_; ++choice) {
    if (choice < static_cast<int>(results.size())) {
      emit_result(choice, std::move(results[static_cast<size_t>(choice)]), step);
    } else {
      step.events.push_back({.choice = choice,
                             .finish = FinishReason::kError,
                             .error = Error{.code = ErrorCode::kInternal,
                                            .message = "the model leaves the beam search too few tokens",
                                            .field = "n"}});
    }
  }
}

void BeamDecoding::emit_result(int choice, BeamResult result, DecodingStep& step) const {
  for (size_t t = 0; t < result.tokens.size(); ++t) {
    BeamToken& token = result.tokens[t];
    StreamEvent event{.choice = choice, .token = token.id, .at_ns = computed_ns_[t]};
    if (logprobs_) {
      event.logprob = TokenLogprob{token.id, token.logprob};
      event.top_logprobs = std::move(token.top);
    }
    if (t + 1 == result.tokens.size()) {
      event.finish = result.finish;
      event.score = {.score = result.score, .logprob_sum = result.logprob_sum};
      if (at_start_.is_end(token.id)) event.text = StreamEvent::Text::kHidden;
    }
    step.events.push_back(std::move(event));
  }
}

DecodingStep BeamDecoding::drop_choice(int) {
  return {};  // nothing of a running search belongs to one choice
}

std::vector<int> BeamDecoding::open_choices() const {
  std::vector<int> open;
  for (int i = 0; i < n_ && !emitted_; ++i) open.push_back(i);
  return open;
}

}  // namespace quire
