#include "engine/trace_replay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "engine/engine_plan.h"
#include "engine/scheduler_stats.h"
#include "files/gguf_file.h"
#include "model/model.h"

namespace quire {
namespace {

// Stream of the generator that makes output tokens: another than those of prompts.
constexpr uint64_t kOutputStream = 2;

}  // namespace

Result<ReplayOptions> plan_replay(const EngineOptions& options) {
  TRY(validate_options(options));
  const GgufFile file = TRY(GgufFile::open(options.model_path));
  const ModelSpec spec = TRY(read_model_spec(file));
  const KvGeometry geometry = spec.kv_geometry(*kv_type_from_name(options.kv_type));
  const int context_length = options.context_length > 0 ? options.context_length : spec.context_length;
  std::vector<int> counts = TRY(plan_pools(geometry, {.context_length = context_length,
                                                      .step_tokens_max = options.step_tokens_max,
                                                      .kv_bytes = options.kv_bytes,
                                                      .bytes_max = usable_memory_bytes() / 4}));
  return ReplayOptions{.scheduler = {.geometry = geometry,
                                     .block_counts = std::move(counts),
                                     .context_length = context_length,
                                     .step_tokens_max = options.step_tokens_max,
                                     .kv_policy = *kv_policy_from_name(options.kv_policy)},
                       .vocab_size = spec.vocab_size,
                       .waiting_max = options.inbox_requests_max};
}

TraceReplay::TraceReplay(const RequestTrace& trace, ReplayOptions options)
    : trace_(trace), options_(std::move(options)), scheduler_(options_.scheduler), ideal_(trace) {
  CHECK(options_.vocab_size >= 1 && options_.waiting_max >= 1);
  CHECK(!options_.step_ms || *options_.step_ms > 0);
}

bool TraceReplay::step() {
  do admit_arrivals();
  while (live_.empty() && next_ < trace_.requests.size());
  if (live_.empty()) return false;
  const ScheduledStep step = scheduler_.plan_step();
  CHECK(!step.empty());
  figures_.running_max = std::max(figures_.running_max, scheduler_.running_count());
  figures_.stats.rows += static_cast<uint64_t>(step.plan.row_count());
  ++figures_.stats.steps;
  ++now_;
  commit(step);
  return true;
}

ReplayFigures TraceReplay::figures() const {
  ReplayFigures figures = figures_;
  fill_scheduler_stats(scheduler_, options_.scheduler.geometry, figures.stats);
  const KvAccounting accounting = scheduler_.kv_accounting();
  figures.stats.requests = static_cast<uint64_t>(accounting.requests_admitted);
  figures.stats.prompt_tokens = static_cast<uint64_t>(accounting.prompt_tokens);
  figures.stats.cached_tokens = static_cast<uint64_t>(accounting.hit_tokens);
  figures.stats.completion_tokens = static_cast<uint64_t>(figures.output_tokens);
  return figures;
}

bool TraceReplay::next_has_arrived() const {
  return !options_.step_ms ||
         trace_.requests[next_].arrival_ms <= static_cast<double>(now_) * *options_.step_ms;
}

void TraceReplay::admit_arrivals() {
  if (next_ < trace_.requests.size() && live_.empty() && options_.step_ms) {
    // Nobody is there: time passes until the next comes.
    const double arrival = std::ceil(trace_.requests[next_].arrival_ms / *options_.step_ms);
    now_ = std::max(now_, static_cast<int64_t>(arrival));
  }
  while (next_ < trace_.requests.size() && next_has_arrived() &&
         scheduler_.waiting_count() < options_.waiting_max)
    admit(next_++);
}

void TraceReplay::admit(size_t request) {
  const TracedRequest& traced = trace_.requests[request];
  SequenceRequest sequence{
      .seq = {request + 1},
      .prompt = traced_prompt(trace_, request, options_.vocab_size),
      .max_tokens = asked_tokens(traced, options_.asked, options_.scheduler.context_length)};
  if (auto admissible = scheduler_.check_admissible(sequence); !admissible) {
    ++figures_.requests_refused;
    if (!figures_.first_refusal) figures_.first_refusal = std::move(admissible.error());
    return;
  }
  figures_.ideal_cached_tokens += ideal_.serve(request);
  figures_.prompt_tokens += traced.prompt_tokens;
  const int64_t arrived =
      options_.step_ms ? static_cast<int64_t>(std::ceil(traced.arrival_ms / *options_.step_ms)) : now_;
  live_.emplace(sequence.seq, Live{.request = request, .arrived_step = arrived});
  scheduler_.add(std::move(sequence));
}

void TraceReplay::commit(const ScheduledStep& step) {
  std::vector<SeqId> completing;
  for (int index : step.completing) completing.push_back(step.plan.sequences[static_cast<size_t>(index)].seq);
  std::vector<SampledToken> sampled;
  for (SeqId seq : completing) sampled.push_back({.seq = seq, .token = take_token(seq)});
  scheduler_.commit_step(sampled);
  for (SeqId seq : completing) {
    const Live& live = live_.at(seq);
    if (live.output_tokens == trace_.requests[live.request].output_tokens) finish(seq);
  }
}

TokenId TraceReplay::take_token(SeqId seq) {
  Live& live = live_.at(seq);
  if (live.output_tokens == 0) {
    figures_.ttft_steps.push_back(static_cast<int>(now_ - live.arrived_step));
  } else {
    figures_.gap_steps.push_back(static_cast<int>(now_ - live.token_step));
  }
  live.token_step = now_;
  const auto place = static_cast<uint64_t>(live.output_tokens++);
  ++figures_.output_tokens;
  return static_cast<TokenId>(uniform_at(seq.value, place, kOutputStream) * options_.vocab_size);
}

void TraceReplay::finish(SeqId seq) {
  ++figures_.requests_done;
  scheduler_.finish(seq);
  live_.erase(seq);
}

}  // namespace quire
