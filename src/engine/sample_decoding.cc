#include "engine/sample_decoding.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace quire {

SampleDecoding::SampleDecoding(const DecodingStart& start)
    : n_(start.n),
      max_tokens_(start.sampling.max_tokens),
      shows_logprobs_(start.sampling.logprobs.has_value()),
      ids_(*start.ids) {
  SamplingParams params = start.sampling;
  if (start.best_of > start.n && !params.logprobs) params.logprobs = 0;
  for (int i = 0; i < start.best_of; ++i) {
    samples_.push_back({.seq = start.seq,
                        .sampler = Sampler(params, {.prompt = start.prompt,
                                                    .end_tokens = start.end_tokens,
                                                    .seed = start.seed + static_cast<uint64_t>(i)}),
                        .stop_watch = StopWatch(*start.tokenizer, params.stop)});
  }
}

void SampleDecoding::add_jobs(SeqId seq, Position position, std::vector<TokenJob>& jobs) const {
  for (size_t i = 0; i < samples_.size(); ++i) {
    const Sample& sample = samples_[i];
    if (sample.state == Sample::State::kOpen && sample.seq == seq)
      jobs.push_back({.seq = seq, .index = static_cast<int>(i), .position = position});
  }
}

void SampleDecoding::evaluate(TokenJob& job, std::span<const float> row, SamplerScratch& scratch) const {
  auto choice = samples_[static_cast<size_t>(job.index)].sampler.sample(row, job.position, scratch);
  if (choice) {
    job.choice = std::move(*choice);
  } else {
    job.error = std::move(choice.error());
  }
}

DecodingStep SampleDecoding::advance(std::span<TokenJob> jobs, int64_t now_ns) {
  DecodingStep step;
  const bool forks = !std::exchange(forked_, true);
  for (TokenJob& job : jobs) {
    Sample& sample = samples_[static_cast<size_t>(job.index)];
    StreamEvent event = take_token(sample, job);
    event.choice = job.index;
    event.at_ns = now_ns;
    const bool ends = event.finish != FinishReason::kNone;
    if (!forks || job.index == 0) {
      step.sampled.push_back({.seq = sample.seq, .token = job.choice.id});
      if (ends) step.ended.push_back(sample.seq);
    } else if (!ends) {
      const SeqId parent = std::exchange(sample.seq, ids_.next());
      step.forks.push_back({.parent = parent, .child = sample.seq, .token = job.choice.id});
    }
    (is_ranked() ? sample.held : step.events).push_back(std::move(event));
  }
  if (is_ranked() && open_choices().empty()) emit_best(step);
  return step;
}

StreamEvent SampleDecoding::take_token(Sample& sample, TokenJob& job) {
  const TokenId token = job.choice.id;
  sample.sampler.accept(token);
  ++sample.tokens;
  StreamEvent event{.token = token};
  if (is_ranked()) sample.logprob_sum += static_cast<double>(job.choice.logprob->logprob);
  if (shows_logprobs_) {
    event.logprob = job.choice.logprob;
    event.top_logprobs = std::move(job.choice.top);
  }
  if (sample.sampler.is_end(token)) {
    event.text = StreamEvent::Text::kHidden;
    event.finish = FinishReason::kStop;
  } else if (is_ranked() && sample.stop_watch.push(token)) {
    event.finish = FinishReason::kStop;
  } else if (sample.tokens >= max_tokens_) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish != FinishReason::kNone) sample.state = Sample::State::kEnded;
  return event;
}

void SampleDecoding::emit_best(DecodingStep& step) {
  std::vector<Sample*> best;
  for (Sample& sample : samples_) best.push_back(&sample);
  std::ranges::stable_sort(best, std::ranges::greater(), &Sample::mean_logprob);
  for (int choice = 0; choice < n_; ++choice) {
    Sample& sample = *best[static_cast<size_t>(choice)];
    sample.held.back().score = {.score = sample.mean_logprob(), .logprob_sum = sample.logprob_sum};
    for (StreamEvent& event : sample.held) event.choice = choice;
    std::ranges::move(sample.held, std::back_inserter(step.events));
  }
}

DecodingStep SampleDecoding::drop_choice(int choice) {
  DecodingStep step;
  CHECK(choice >= 0 && choice < static_cast<int>(samples_.size()));
  Sample& sample = samples_[static_cast<size_t>(choice)];
  // Ranked ones are nobody's yet; an ended one has left.
  if (is_ranked() || sample.state == Sample::State::kEnded) return step;
  CHECK(forked_);
  sample.state = Sample::State::kEnded;
  step.ended.push_back(sample.seq);
  step.events.push_back({.choice = choice, .finish = FinishReason::kCancelled});
  return step;
}

std::vector<int> SampleDecoding::open_choices() const {
  std::vector<int> open;
  const bool some_left = std::ranges::any_of(
      samples_, [](const Sample& sample) { return sample.state == Sample::State::kOpen; });
  for (int i = 0; i < n_; ++i) {
    const bool is_open =
        is_ranked() ? some_left : samples_[static_cast<size_t>(i)].state == Sample::State::kOpen;
    if (is_open) open.push_back(i);
  }
  return open;
}

}  // namespace quire
