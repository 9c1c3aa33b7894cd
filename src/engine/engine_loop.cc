#include "engine/engine_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "engine/scheduler_stats.h"

namespace quire {
namespace {

StepTime count_rows(const StepPlan& plan) {
  StepTime time;
  for (const PlannedSequence& sequence : plan.sequences) {
    const int rows = static_cast<int>(sequence.tokens.size());
    (rows == 1 ? time.decode_rows : time.prefill_rows) += rows;
  }
  return time;
}

#ifdef QUIRE_PARANOID
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

#endif

}  // namespace

EngineLoop::EngineLoop(EngineParts parts)
    : parts_(std::move(parts)), scratch_(static_cast<size_t>(parts_.pool->size())) {
  publish();
}

void EngineLoop::run() {
  parts_.pool->pin_caller();
  do {
    if (!live_.empty()) continue;
    parts_.scheduler->audit();
    parts_.inbox->wait();
  } while (beat());
}

bool EngineLoop::beat() {
  InboxBatch batch = parts_.inbox->take();
  const bool closed = batch.state == InboxBatch::State::kClosed;
  admit(std::move(batch));
  if (!closed) {
    if (!live_.empty()) step();
    return true;
  }
  while (!live_.empty()) end_open_choices(*live_.begin()->second, {.finish = FinishReason::kCancelled});
  parts_.scheduler->audit();
  return false;
}

void EngineLoop::admit(InboxBatch batch) {
  for (Submission& submission : batch.submissions) {
    SequenceRequest& sequence = submission.sequence;
    auto request = std::make_unique<LiveRequest>();
    request->seq = sequence.seq;
    request->stream = std::move(submission.stream);
    request->decoding = make_decoding({.seq = sequence.seq,
                                       .prompt = sequence.prompt,
                                       .end_tokens = parts_.end_tokens,
                                       .sampling = std::move(submission.sampling),
                                       .seed = submission.seed,
                                       .n = submission.n,
                                       .best_of = submission.best_of,
                                       .beam = submission.beam,
                                       .tokenizer = parts_.tokenizer,
                                       .ids = parts_.seq_ids});
    request->sequences = {sequence.seq};
    request->prompt_logprobs = submission.prompt_logprobs;
    request->prompt_tokens = static_cast<int>(sequence.prompt.size());
    request->max_tokens = sequence.max_tokens;
    sequences_.emplace(sequence.seq, request.get());
    live_.emplace(sequence.seq, std::move(request));
    parts_.scheduler->add(std::move(sequence));
  }
  for (const Cancellation& cancellation : batch.cancellations) cancel(cancellation);
  const int pins = parts_.scheduler->pins().count();
  parts_.scheduler->expire_pins(parts_.clock->now_ns());
  if (parts_.scheduler->pins().count() != pins) publish();
  for (PinOrder& order : batch.pin_orders) {
    Result<PinId> answer = carry_out(order);
    publish();
    order.answer.set_value(std::move(answer));
  }
}

Result<PinId> EngineLoop::carry_out(const PinOrder& order) {
  if (order.unpin) {
    TRY(parts_.scheduler->unpin_prefix(*order.unpin));
    return *order.unpin;
  }
  return parts_.scheduler->pin_prefix({.scope = order.scope,
                                       .tokens = order.tokens,
                                       .now_ns = parts_.clock->now_ns(),
                                       .ttl_ms = order.ttl_ms});
}

void EngineLoop::cancel(const Cancellation& cancellation) {
  const auto found = live_.find(cancellation.request);
  if (found == live_.end()) return;
  LiveRequest& request = *found->second;
  if (cancellation.choice == Cancellation::kAllChoices) {
    end_open_choices(request, {.finish = FinishReason::kCancelled});
    return;
  }
  DecodingStep step = request.decoding->drop_choice(cancellation.choice);
  follow(request, step);
  publish();
  emit(request, std::move(step.events));
}

void EngineLoop::step() {
  const int64_t begin_ns = parts_.clock->now_ns();
  ScheduledStep step = parts_.scheduler->plan_step();
  CHECK(!step.empty());
  note_started(step.plan);
#ifdef QUIRE_PARANOID
  poison_unwritten(step.plan, *parts_.kv);
#endif
  for (const BlockCopy& copy : step.copies) parts_.kv->copy_block(copy.group, copy.from, copy.to);
  const LogitsView logits = parts_.forward(step.plan, *parts_.kv);
  std::vector<RowJob> jobs = row_jobs(step);
  evaluate(jobs, logits);
  std::vector<Outcome> outcomes = this->outcomes(jobs, step);
  StepTime time = count_rows(step.plan);
  ++counted_.steps;
  counted_.rows += static_cast<uint64_t>(time.decode_rows + time.prefill_rows);
  commit(outcomes);
  time.ms = static_cast<double>(parts_.clock->now_ns() - begin_ns) * 1e-6;
  parts_.scheduler->note_step_time(time);
#ifdef QUIRE_PARANOID
  parts_.scheduler->audit();
#endif
}

void EngineLoop::note_started(const StepPlan& plan) {
  const int64_t now = parts_.clock->now_ns();
  int started = 0;
  for (const PlannedSequence& sequence : plan.sequences) {
    LiveRequest& request = *sequences_.at(sequence.seq);
    if (request.started_ns != 0) continue;
    request.started_ns = now;
    request.cached_tokens = parts_.scheduler->figures(sequence.seq).cached_tokens;
    ++started;
    ++counted_.requests;
    counted_.prompt_tokens += static_cast<uint64_t>(request.prompt_tokens);
    counted_.cached_tokens += static_cast<uint64_t>(request.cached_tokens);
  }
  if (started == 0) return;
  parts_.inbox->left_queue(started);
  publish();
}

std::vector<EngineLoop::RowJob> EngineLoop::row_jobs(const ScheduledStep& step) {
  std::vector<RowJob> jobs;
  std::vector<TokenJob> tokens;
  std::vector<bool> completes(step.plan.sequences.size());
  for (int index : step.completing) completes[static_cast<size_t>(index)] = true;
  int logits_row = 0;
  for (size_t index = 0; index < step.plan.sequences.size(); ++index) {
    const PlannedSequence& sequence = step.plan.sequences[index];
    LiveRequest& request = *sequences_.at(sequence.seq);
    const std::span<const TokenId> known = parts_.scheduler->tokens(sequence.seq);
    const int rows = static_cast<int>(sequence.tokens.size());
    for (int i = sequence.logits_from; i < rows; ++i, ++logits_row) {
      RowJob job{.request = &request, .logits_row = logits_row, .position = sequence.first_position + i};
      if (request.prompt_logprobs && job.position < request.prompt_tokens) {
        job.kind = RowJob::Kind::kPromptPosition;
        const auto next = static_cast<size_t>(job.position) + 1;
        if (job.position + 1 < request.prompt_tokens) job.next = known[next];
        jobs.push_back(job);
      }
      if (!completes[index] || i + 1 < rows || request.max_tokens == 0) continue;
      tokens.clear();
      request.decoding->add_jobs(sequence.seq, job.position + 1, tokens);
      job.kind = RowJob::Kind::kToken;
      for (TokenJob& token : tokens) {
        jobs.push_back(job);
        jobs.back().token = std::move(token);
      }
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
  if (job.kind == RowJob::Kind::kToken) {
    job.request->decoding->evaluate(job.token, row, scratch);
    job.error = std::move(job.token.error);
    return;
  }
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

std::vector<EngineLoop::Outcome> EngineLoop::outcomes(std::vector<RowJob>& jobs, const ScheduledStep& step) {
  std::vector<Outcome> all;
  std::unordered_map<const LiveRequest*, size_t> places;
  auto outcome_of = [&](LiveRequest* request) -> Outcome& {
    const auto [at, is_new] = places.emplace(request, all.size());
    if (is_new) all.push_back({.request = request});
    return all[at->second];
  };
  for (RowJob& job : jobs) {
    Outcome& outcome = outcome_of(job.request);
    if (job.error) {
      outcome.error = std::move(job.error);
    } else if (job.kind == RowJob::Kind::kPromptPosition) {
      outcome.prompt_positions.push_back(std::move(job.prompt_position));
    } else {
      outcome.jobs.push_back(std::move(job.token));
    }
  }
  for (int index : step.completing) {
    LiveRequest* request = sequences_.at(step.plan.sequences[static_cast<size_t>(index)].seq);
    if (request->max_tokens == 0) outcome_of(request).prompt = Outcome::Prompt::kEndsRequest;
  }
  const int64_t now = parts_.clock->now_ns();
  for (Outcome& outcome : all) {
    if (outcome.error || outcome.jobs.empty()) continue;
    counted_.completion_tokens += outcome.jobs.size();
    outcome.step = outcome.request->decoding->advance(outcome.jobs, now);
  }
  return all;
}

// Tells the scheduler first and the readers then, so that a final event finds the blocks given back.
void EngineLoop::commit(std::vector<Outcome>& outcomes) {
  std::vector<SampledToken> sampled;
  for (const Outcome& outcome : outcomes)
    sampled.insert(sampled.end(), outcome.step.sampled.begin(), outcome.step.sampled.end());
  parts_.scheduler->commit_step(sampled);
  for (const Outcome& outcome : outcomes)
    if (!outcome.error) follow(*outcome.request, outcome.step);
  publish();
  for (Outcome& outcome : outcomes) {
    LiveRequest& request = *outcome.request;
    if (outcome.error) {
      end_open_choices(request, {.finish = FinishReason::kError, .error = std::move(outcome.error)});
      continue;
    }
    std::vector<StreamEvent> events;
    if (!outcome.prompt_positions.empty())
      events.push_back({.prompt_positions = std::move(outcome.prompt_positions)});
    std::ranges::move(outcome.step.events, std::back_inserter(events));
    emit(request, std::move(events));
    if (outcome.prompt == Outcome::Prompt::kEndsRequest)
      end_open_choices(request, {.finish = FinishReason::kLength});
  }
}

// Forks and ends as a committed step asks for them.
void EngineLoop::follow(LiveRequest& request, const DecodingStep& step) {
  for (const ForkRequest& fork : step.forks) {
    parts_.scheduler->fork(fork);
    sequences_.emplace(fork.child, &request);
    request.sequences.push_back(fork.child);
  }
  refresh(request);
  for (SeqId seq : step.ended) {
    parts_.scheduler->finish(seq);
    sequences_.erase(seq);
    std::erase(request.sequences, seq);
  }
}

void EngineLoop::refresh(LiveRequest& request) {
  CHECK(!request.sequences.empty());
  const RequestFigures figures = parts_.scheduler->request_figures(request.sequences.front());
  int tokens = 0;
  for (SeqId seq : request.sequences)
    tokens = std::max(tokens, parts_.scheduler->figures(seq).computed_tokens);
  request.kv = {.block_tokens = parts_.kv->geometry().block_tokens,
                .blocks_used = figures.blocks_used,
                .blocks_as_copies = figures.blocks_as_copies,
                .blocks_used_max = figures.blocks_used_max,
                .blocks_as_copies_max = figures.blocks_as_copies_max,
                .tokens_used = tokens,
                .preemptions = figures.preemptions};
}

// The request is gone after its last final event.
void EngineLoop::emit(LiveRequest& request, std::vector<StreamEvent> events) {
  for (StreamEvent& event : events) {
    if (event.at_ns == 0) event.at_ns = parts_.clock->now_ns();
    event.started_ns = request.started_ns;
    event.cached_tokens = request.cached_tokens;
    event.kv = request.kv;
    request.stream->push(std::move(event));
  }
  if (request.sequences.empty()) live_.erase(request.seq);
}

// Ends the whole request: each choice without a final event gets `last`.
void EngineLoop::end_open_choices(LiveRequest& request, const StreamEvent& last) {
  if (request.started_ns == 0) parts_.inbox->left_queue(1);
  refresh(request);
  parts_.scheduler->finish_request(request.sequences.front());
  for (SeqId seq : request.sequences) sequences_.erase(seq);
  request.sequences.clear();
  publish();
  std::vector<StreamEvent> events;
  for (int choice : request.decoding->open_choices()) {
    events.push_back(last);
    events.back().choice = choice;
  }
  emit(request, std::move(events));
}

void EngineLoop::publish() {
  EngineStats now = counted_;
  for (const auto& [seq, request] : live_)
    now.running += request->started_ns != 0 && !request->sequences.empty() ? 1 : 0;
  fill_scheduler_stats(*parts_.scheduler, parts_.kv->geometry(), now);
  now.pins = parts_.scheduler->pins().count();
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
