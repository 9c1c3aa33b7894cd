#include "engine/engine_loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/checked.h"

namespace quire {
#ifdef QUIRE_PARANOID
namespace {

// Blocks of which no row was written yet: a row that is read before it is written becomes NaN.
void poison_unwritten(const StepPlan& plan, KvStore& kv) {
  const int groups = static_cast<int>(kv.geometry().groups.size());
  for (const PlannedSequence& sequence : plan.sequences) {
    const int first = ceil_div(sequence.first_position, kv.geometry().block_tokens);
    for (int g = 0; g < groups; ++g)
      for (BlockId block : sequence.block_table[static_cast<size_t>(g)].subspan(static_cast<size_t>(first)))
        kv.poison(g, block);
  }
}

}  // namespace
#endif

EngineLoop::EngineLoop(EngineParts parts)
    : parts_(std::move(parts)), scratch_(static_cast<size_t>(parts_.pool->size())) {
  publish();
}

void EngineLoop::run() {
  parts_.pool->pin_caller();
  while (true) {
    if (live_.empty()) parts_.scheduler->audit();
    InboxBatch batch = live_.empty() ? parts_.inbox->wait_and_take() : parts_.inbox->take();
    const bool closed = batch.state == InboxBatch::State::kClosed;
    admit(std::move(batch));
    if (closed) break;
    if (!live_.empty()) step();
  }
  while (!live_.empty()) end(live_.begin()->first, {.finish = FinishReason::kCancelled});
  parts_.scheduler->audit();
}

void EngineLoop::admit(InboxBatch batch) {
  for (Submission& submission : batch.submissions) {
    const SequenceRequest& sequence = submission.sequence;
    const SeqId seq = sequence.seq;
    LiveRequest request{
        .stream = std::move(submission.stream),
        .sampler =
            Sampler(submission.sampling,
                    {.prompt = sequence.prompt, .end_tokens = parts_.end_tokens, .seed = submission.seed}),
        .prompt_logprobs = submission.prompt_logprobs,
        .prompt_tokens = static_cast<int>(sequence.prompt.size()),
        .max_tokens = sequence.max_tokens,
    };
    live_.emplace(seq, std::move(request));
    parts_.scheduler->add(std::move(submission.sequence));
  }
  for (SeqId seq : batch.cancellations) {
    if (live_.contains(seq)) end(seq, {.finish = FinishReason::kCancelled});
  }
}

void EngineLoop::step() {
  ScheduledStep step = parts_.scheduler->plan_step();
  CHECK(!step.empty());
  note_started(step.plan);
#ifdef QUIRE_PARANOID
  poison_unwritten(step.plan, *parts_.kv);
#endif
  for (const BlockCopy& copy : step.copies) parts_.kv->copy_block(copy.group, copy.from, copy.to);
  LogitsView logits = parts_.model->forward(step.plan, *parts_.kv);
  std::vector<RowJob> jobs = row_jobs(step);
  evaluate(jobs, logits);
  std::vector<SeqId> completing;
  for (int index : step.completing) completing.push_back(step.plan.sequences[static_cast<size_t>(index)].seq);
  ++steps_;
  commit(jobs, completing);
#ifdef QUIRE_PARANOID
  parts_.scheduler->audit();
#endif
}

void EngineLoop::note_started(const StepPlan& plan) {
  const int64_t now = parts_.clock->now_ns();
  int started = 0;
  for (const PlannedSequence& sequence : plan.sequences) {
    LiveRequest& request = live_.at(sequence.seq);
    if (request.started_ns != 0) continue;
    request.started_ns = now;
    ++started;
  }
  if (started == 0) return;
  parts_.inbox->left_queue(started);
  publish();
}

std::vector<EngineLoop::RowJob> EngineLoop::row_jobs(const ScheduledStep& step) {
  std::vector<RowJob> jobs;
  std::vector<bool> completes(step.plan.sequences.size());
  for (int index : step.completing) completes[static_cast<size_t>(index)] = true;
  int logits_row = 0;
  for (size_t index = 0; index < step.plan.sequences.size(); ++index) {
    const PlannedSequence& sequence = step.plan.sequences[index];
    LiveRequest& request = live_.at(sequence.seq);
    const std::span<const TokenId> tokens = parts_.scheduler->tokens(sequence.seq);
    const int rows = static_cast<int>(sequence.tokens.size());
    for (int i = sequence.logits_from; i < rows; ++i, ++logits_row) {
      RowJob job{.seq = sequence.seq,
                 .request = &request,
                 .logits_row = logits_row,
                 .position = sequence.first_position + i};
      job.wants_prompt_position = request.prompt_logprobs && job.position < request.prompt_tokens;
      job.wants_token = completes[index] && i + 1 == rows && request.max_tokens > 0;
      if (job.wants_prompt_position && job.position + 1 < request.prompt_tokens) {
        job.next = tokens[static_cast<size_t>(job.position) + 1];
      }
      if (job.wants_prompt_position || job.wants_token) jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

void EngineLoop::evaluate(std::vector<RowJob>& jobs, const LogitsView& logits) {
  const auto count = static_cast<int64_t>(jobs.size());
  auto member = [&](int index) {
    Share share = share_of(count, index, parts_.pool->size());
    for (int64_t j = share.begin; j < share.end; ++j) {
      RowJob& job = jobs[static_cast<size_t>(j)];
      evaluate_row(job, logits.row(job.logits_row), scratch_[static_cast<size_t>(index)]);
    }
  };
  if (count > 1) {
    parts_.pool->run(member);
  } else if (count == 1) {
    evaluate_row(jobs[0], logits.row(jobs[0].logits_row), scratch_[0]);
  }
}

void EngineLoop::evaluate_row(RowJob& job, std::span<const float> row, SamplerScratch& scratch) const {
  if (job.wants_prompt_position) {
    if (auto sane = check_row(scratch.raw.scan(row), job.position + 1); !sane) {
      job.error = sane.error();
      return;
    }
    const double logsumexp = scratch.raw.logsumexp();
    job.prompt_position.logsumexp = logsumexp;
    if (job.next) {
      job.prompt_position.next =
          TokenLogprob{*job.next, static_cast<float>(scratch.raw.logit(*job.next) - logsumexp)};
    }
    job.prompt_position.top = top_logprobs(scratch.raw, logsumexp, *job.request->prompt_logprobs);
  }
  if (job.wants_token) {
    auto choice = job.request->sampler.sample(row, job.position + 1, scratch);
    if (choice) {
      job.choice = std::move(*choice);
    } else {
      job.error = std::move(choice.error());
    }
  }
}

// Tells the scheduler first and the readers then, so that a final event finds the blocks given back.
void EngineLoop::commit(std::vector<RowJob>& jobs, std::span<const SeqId> completing) {
  std::vector<SampledToken> sampled;
  for (const RowJob& job : jobs) {
    if (job.wants_token && !job.error) sampled.push_back({.seq = job.seq, .token = job.choice.id});
  }
  parts_.scheduler->commit_step(sampled);
  publish();
  for (size_t begin = 0; begin < jobs.size();) {
    size_t end = begin + 1;
    while (end < jobs.size() && jobs[end].seq == jobs[begin].seq) ++end;
    emit_rows(std::span(jobs).subspan(begin, end - begin));
    begin = end;
  }
  for (SeqId seq : completing) {
    auto found = live_.find(seq);
    if (found != live_.end() && found->second.max_tokens == 0) end(seq, {.finish = FinishReason::kLength});
  }
}

// `jobs`: the rows of one sequence.
void EngineLoop::emit_rows(std::span<RowJob> jobs) {
  StreamEvent positions;
  for (RowJob& job : jobs) {
    if (job.error) {
      end(job.seq, {.finish = FinishReason::kError, .error = std::move(job.error)});
      return;
    }
    if (job.wants_prompt_position) positions.prompt_positions.push_back(std::move(job.prompt_position));
  }
  LiveRequest& request = *jobs.front().request;
  if (!positions.prompt_positions.empty()) {
    stamp(jobs.front().seq, request, positions);
    request.stream->push(std::move(positions));
  }
  if (jobs.back().wants_token) emit_token(jobs.back());
}

void EngineLoop::emit_token(RowJob& job) {
  LiveRequest& request = *job.request;
  const TokenId token = job.choice.id;
  request.sampler.accept(token);
  ++request.output_tokens;
  StreamEvent event{.token = token, .logprob = job.choice.logprob, .top_logprobs = std::move(job.choice.top)};
  if (request.sampler.is_end(token)) {
    event.text = StreamEvent::Text::kHidden;
    event.finish = FinishReason::kStop;
  } else if (request.output_tokens >= request.max_tokens) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish != FinishReason::kNone) {
    end(job.seq, std::move(event));
    return;
  }
  stamp(job.seq, request, event);
  request.stream->push(std::move(event));
}

void EngineLoop::stamp(SeqId seq, const LiveRequest& request, StreamEvent& event) const {
  const SequenceFigures figures = parts_.scheduler->figures(seq);
  event.at_ns = parts_.clock->now_ns();
  event.started_ns = request.started_ns;
  event.cached_tokens = figures.cached_tokens;
  event.kv = {.block_tokens = parts_.kv->geometry().block_tokens,
              .blocks_used = figures.blocks_used,
              .tokens_used = figures.computed_tokens};
}

void EngineLoop::end(SeqId seq, StreamEvent event) {
  auto found = live_.find(seq);
  CHECK(found != live_.end());
  LiveRequest request = std::move(found->second);
  live_.erase(found);
  if (request.started_ns == 0) parts_.inbox->left_queue(1);
  stamp(seq, request, event);
  parts_.scheduler->finish(seq);
  publish();
  request.stream->push(std::move(event));
}

void EngineLoop::publish() {
  EngineStats now;
  for (const auto& [seq, request] : live_) now.running += request.started_ns != 0 ? 1 : 0;
  now.steps = steps_;
  for (size_t g = 0; g < parts_.kv->geometry().groups.size(); ++g) {
    const BlockPool& pool = parts_.scheduler->pool(static_cast<int>(g));
    now.pools.push_back({.total = pool.total(),
                         .free = pool.free_count(),
                         .open = pool.open_count(),
                         .pinned = pool.pinned_count(),
                         .idle = pool.idle_count(),
                         .block_bytes = parts_.kv->block_bytes(static_cast<int>(g))});
  }
  std::lock_guard lock(stats_mutex_);
  stats_ = std::move(now);
}

EngineStats EngineLoop::stats() const {
  EngineStats stats;
  {
    std::lock_guard lock(stats_mutex_);
    stats = stats_;
  }
  stats.waiting = parts_.inbox->waiting_count();
  return stats;
}

}  // namespace quire
