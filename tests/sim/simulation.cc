#include "tests/sim/simulation.h"

#include <algorithm>
#include <utility>

#include "tests/sim/checkers/block_conservation.h"
#include "tests/sim/checkers/block_reads.h"
#include "tests/sim/checkers/cancels.h"
#include "tests/sim/checkers/door.h"
#include "tests/sim/checkers/fairness.h"
#include "tests/sim/checkers/liveness.h"
#include "tests/sim/checkers/pinned_prefixes.h"
#include "tests/sim/checkers/preemptions.h"
#include "tests/sim/checkers/summaries.h"
#include "tests/sim/checkers/token_oracle.h"

namespace quire::sim {
namespace {

// What a step takes on the manual clock.
double step_ms(const StepPlan& plan) {
  double ms = 3;
  for (const PlannedSequence& sequence : plan.sequences)
    ms += sequence.tokens.size() == 1 ? 0.05 : 0.5 * static_cast<double>(sequence.tokens.size());
  return ms;
}

std::shared_ptr<const Tokenizer> toy_tokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = [] {
    const std::vector<std::string_view> tokens(toy_pieces().begin(), toy_pieces().end());
    std::vector<int32_t> types(kVocab, 1);
    types[kEos] = types[kBroken] = 3;
    return Tokenizer::from_fields(
               {.model = "gpt2", .pre = "gpt-2", .tokens = tokens, .token_types = types, .eos = kEos})
        .value();
  }();
  return tokenizer;
}

}  // namespace

Totals& Totals::operator+=(const Totals& other) {
  requests += other.requests;
  refused += other.refused;
  steps += other.steps;
  abandoned += other.abandoned;
  stopped += other.stopped;
  rows += other.rows;
  tokens += other.tokens;
  preemptions += other.preemptions;
  evictions += other.evictions;
  copies += other.copies;
  hits += other.hits;
  forks += other.forks;
  pins += other.pins;
  errors += other.errors;
  read_late += other.read_late;
  for (size_t i = 0; i < left_at.size(); ++i) left_at[i] += other.left_at[i];
  digest = digest * 31 + other.digest;
  return *this;
}

Simulation::Simulation(const World& world, uint64_t seed, ThreadPool& pool)
    : world_(world),
      options_(options_of(world)),
      clients_(world, seed),
      kv_(KvStore::create(options_.geometry, options_.block_counts).value()),
      scheduler_(options_),
      inbox_(std::make_shared<Inbox>(world.inbox_requests_max)),
      door_({.scheduler = &scheduler_,
             .inbox = inbox_,
             .tokenizer = toy_tokenizer(),
             .clock = &clock_,
             .seq_ids = &seq_ids_,
             .scopes = &scopes_,
             .vocab_size = kVocab,
             .sequences_max = std::min(options_.running_sequences_max, options_.step_tokens_max)}),
      loop_({.pool = &pool,
             .forward = [this](const StepPlan& plan, KvStore& kv) { return forward(plan, kv); },
             .kv = kv_.get(),
             .scheduler = &scheduler_,
             .inbox = inbox_.get(),
             .clock = &clock_,
             .tokenizer = toy_tokenizer().get(),
             .seq_ids = &seq_ids_,
             .end_tokens = {kEos}}) {
  const Watched watched{.options = options_,
                        .scheduler = scheduler_,
                        .loop = loop_,
                        .inbox = *inbox_,
                        .inbox_requests_max = world.inbox_requests_max,
                        .kv = *kv_};
  checkers_.push_back(std::make_unique<BlockConservation>(watched));
  checkers_.push_back(std::make_unique<BlockReads>(watched));
  checkers_.push_back(std::make_unique<TokenOracle>(watched));
  checkers_.push_back(std::make_unique<Summaries>(watched));
  checkers_.push_back(std::make_unique<Liveness>(watched));
  checkers_.push_back(std::make_unique<Cancels>(watched));
  checkers_.push_back(std::make_unique<Fairness>(watched));
  checkers_.push_back(std::make_unique<Preemptions>(watched));
  checkers_.push_back(std::make_unique<Door>(watched));
  checkers_.push_back(std::make_unique<PinnedPrefixes>(watched));
}

// After a violation requests may live.
Simulation::~Simulation() {
  inbox_->close();
  loop_.beat();
}

std::optional<std::string> Simulation::first_violation() const {
  for (const auto& checker : checkers_)
    if (!checker->violations().empty())
      return fmt::format("beat {}: {}", beats_, checker->violations().front());
  return std::nullopt;
}

std::optional<std::string> Simulation::run(const RunLength& length) {
  while ((totals_.requests < length.requests || !requests_.empty()) && totals_.steps < length.steps_max) {
    if (clients_.below(3) == 0)
      for (int i = clients_.below(world_.requests_per_beat) + 1; i > 0 && totals_.requests < length.requests;
           --i)
        arrive();
    leave_some();
    pin_and_unpin_some();
    beat();
    if (first_violation()) break;
    read_some();
    give_up_a_step();
    drop_a_scope();
    if (living_.empty() && inbox_->waiting_count() == 0) tell([](Checker& checker) { checker.on_silence(); });
    if (first_violation()) break;
  }
  if (!first_violation()) stop();
  count();
  return first_violation();
}

void Simulation::arrive() {
  Client client = clients_.draw();
  ++totals_.requests;
  auto accepted = door_.submit(client.request);
  if (!accepted) {
    ++totals_.refused;
    tell([&](Checker& checker) { checker.on_refusal({.wish = client.request, .error = accepted.error()}); });
    return;
  }
  LiveRequest& request = requests_[accepted->seq];
  request.client = std::move(client);
  request.stream.emplace(std::move(accepted->stream));
  request.answer.choices.resize(static_cast<size_t>(request.client.request.n));
  request.arrived_beat = beats_;
  tell([&](Checker& checker) {
    checker.on_arrival({.request = accepted->seq, .wish = request.client.request});
  });
}

void Simulation::leave_some() {
  for (auto& [seq, request] : requests_) {
    const Client& client = request.client;
    if (!request.stream || request.answer.cut != Answer::Cut::kNot) continue;
    const bool at_stage = client.leaves == Client::Leaves::kAtStage && client.leave_at == request.stage;
    const bool after_beats =
        client.leave_after_beats >= 0 && beats_ - request.arrived_beat >= client.leave_after_beats;
    const bool after_tokens =
        client.leave_after_tokens >= 0 && request.answer.token_count() > client.leave_after_tokens;
    if (at_stage || after_beats || after_tokens) leave(seq, request);
  }
}

void Simulation::leave(SeqId seq, LiveRequest& request) {
  ++totals_.left_at[static_cast<size_t>(request.stage)];
  if (!std::exchange(request.left, true)) tell([&](Checker& checker) { checker.on_leave(seq); });
  if (request.client.exit == Client::Exit::kCancels) {
    request.answer.cut = Answer::Cut::kCancelled;
    request.stream->cancel();
  } else {
    request.answer.cut = Answer::Cut::kDropped;
    finish_reading(seq, request);
  }
}

void Simulation::beat() {
  const int64_t begin_ns = clock_.now_ns();
  tell([&](Checker& checker) { checker.on_time(begin_ns); });
  loop_.beat();
  ++beats_;
  look_around();
  settle_pins(begin_ns);
  tell([&](Checker& checker) { checker.on_beat(living_); });
}

LogitsView Simulation::forward(const StepPlan& plan, KvStore& kv) {
  ++totals_.steps;
  const std::vector<LivingSequence> living = scheduler_.living();
  const Planned planned{.plan = plan, .living = living};
  tell([&](Checker& checker) { checker.on_plan(planned); });
  // A wrong plan is not computed: the run ends with this beat.
  static const std::vector<float> nothing(size_t{1} << 16, 0.0f);
  if (first_violation())
    return {.values = std::span(nothing).first(static_cast<size_t>(plan.logit_row_count() * kVocab)),
            .vocab_size = kVocab};
  const LogitsView logits = model_.forward(plan, kv);
  tell([&](Checker& checker) { checker.on_computed(planned); });
  clock_.advance_ms(step_ms(plan));
  return logits;
}

// Who lives after the beat, and where they are.
void Simulation::look_around() {
  living_ = scheduler_.living();
  for (auto& [seq, request] : requests_) request.sequences.clear();
  for (const LivingSequence& sequence : living_) {
    requests_.at(sequence.request).sequences.push_back(sequence.seq);
    totals_.forks += sequence.seq != sequence.request && sequence.seq > newest_ ? 1 : 0;
  }
  for (const LivingSequence& sequence : living_) newest_ = std::max(newest_, sequence.seq);
  for (auto& [seq, request] : requests_) update_stage(seq, request);
}

void Simulation::update_stage(SeqId seq, LiveRequest& request) {
  if (request.stage == Stage::kFinished) return;
  if (request.sequences.empty()) {
    request.stage = Stage::kFinished;
    tell([&](Checker& checker) { checker.on_gone(seq); });
    return;
  }
  const SequenceFigures figures = scheduler_.figures(request.sequences.front());
  switch (figures.state) {
    case SequenceState::kWaiting:
      request.stage = Stage::kQueued;
      break;
    case SequenceState::kPreempted:
      request.stage = Stage::kPreempted;
      break;
    case SequenceState::kPrefilling:
      request.stage = Stage::kPrefilling;
      break;
    case SequenceState::kDecoding:
      request.stage = request.sequences.size() > 1 ? Stage::kForked : Stage::kDecoding;
      break;
  }
}

void Simulation::order_pin(PrefixPin pin) {
  if (pin.prompt_token_ids.empty()) return;
  PinWish wish{.pin = pin, .answer = door_.order_pin(std::move(pin))};
  pin_wishes_.push_back(std::move(wish));
}

// Prefixes that may be cached or not; those whose computation was a request of its own come from
// finish_reading().
void Simulation::pin_and_unpin_some() {
  if (world_.pinned_blocks_max == 0 || clients_.below(2) > 0) return;
  if (pins_.empty() || clients_.below(4) > 0) {
    order_pin({.prompt_token_ids = clients_.draw_prefix(),
               .cache_salt = clients_.draw_salt(),
               .ttl_ms = 1 + clients_.below(300)});
    return;
  }
  const auto at = pins_.begin() + clients_.below(static_cast<int>(pins_.size()));
  const PinId pin = *at;
  pins_.erase(at);
  (void)door_.order_unpin(pin);
  tell([&](Checker& checker) { checker.on_unpin(pin); });
}

void Simulation::settle_pins(int64_t ordered_ns) {
  for (PinWish& wish : pin_wishes_) {
    const Result<PinId> pin = wish.answer.get();
    if (!pin) continue;
    ++totals_.pins;
    pins_.push_back(*pin);
    tell([&](Checker& checker) {
      checker.on_pin({.id = *pin,
                      .scope = scopes_.scope_of(wish.pin.cache_salt),
                      .tokens = wish.pin.prompt_token_ids,
                      .expires_ns = ordered_ns + wish.pin.ttl_ms * 1'000'000});
    });
  }
  pin_wishes_.clear();
}

void Simulation::read_some() {
  for (auto& [seq, request] : requests_)
    if (request.stream) read(seq, request);
  std::erase_if(requests_, [](const auto& entry) {
    return !entry.second.stream && entry.second.stage == Stage::kFinished;
  });
}

void Simulation::read(SeqId seq, LiveRequest& request) {
  const Client& client = request.client;
  const bool finished = request.stage == Stage::kFinished;
  if (!finished && (beats_ - request.arrived_beat) % client.read_every != 0) return;
  const bool waits_to_leave = client.leaves == Client::Leaves::kAtStage &&
                              client.leave_at == Stage::kFinished && request.answer.cut == Answer::Cut::kNot;
  if (waits_to_leave) return;
  int wanted = finished ? std::numeric_limits<int>::max() : client.read_most;
  for (; wanted > 0 && !request.answer.is_complete(); --wanted) {
    auto event = request.stream->try_next();
    if (!event) break;
    totals_.read_late += finished ? 1 : 0;
    totals_.tokens += event->token_id ? 1 : 0;
    totals_.errors += event->error ? 1 : 0;
    const auto token = static_cast<uint64_t>(event->token_id.value_or(kVocab));
    totals_.digest = (totals_.digest * 31 + seq.value * 1000 + token) ^ static_cast<uint64_t>(event->choice);
    request.answer.take(std::move(*event));
  }
  // When the engine is through with it, all of it is there.
  if (finished || request.answer.is_complete()) finish_reading(seq, request);
}

void Simulation::finish_reading(SeqId seq, LiveRequest& request) {
  request.answer.summary = request.stream->summary();
  request.stream.reset();
  // A stop string may have ended it: the engine learns of that now.
  if (request.stage != Stage::kFinished && !std::exchange(request.left, true))
    tell([&](Checker& checker) { checker.on_leave(seq); });
  const Request& wish = request.client.request;
  tell(
      [&](Checker& checker) { checker.on_answer({.request = seq, .wish = wish, .answer = request.answer}); });
  totals_.preemptions += request.answer.summary.kv.preemptions;
  totals_.hits += request.answer.summary.usage.cached_tokens > 0 ? 1 : 0;
  Tokens text = wish.prompt_token_ids;
  if (!request.answer.choices.empty())
    text.insert(text.end(), request.answer.choices[0].tokens.begin(), request.answer.choices[0].tokens.end());
  clients_.remember(std::move(text));
  if (request.client.pin_ms > 0 && request.answer.cut == Answer::Cut::kNot && clients_.uses(wish.cache_salt))
    order_pin({.prompt_token_ids = wish.prompt_token_ids,
               .cache_salt = wish.cache_salt,
               .ttl_ms = request.client.pin_ms});
}

// A plan that comes to nothing, although its blocks were copied, leaves everything as it was.
void Simulation::give_up_a_step() {
  if (living_.empty() || clients_.below(20) > 0) return;
  const ScheduledStep step = scheduler_.plan_step();
  ++totals_.abandoned;
  for (const BlockCopy& copy : step.copies) kv_->copy_block(copy.group, copy.from, copy.to);
  tell([&](Checker& checker) { checker.on_plan({.plan = step.plan, .living = living_}); });
  scheduler_.abandon_step();
  tell([](Checker& checker) { checker.on_abandon(); });
}

void Simulation::drop_a_scope() {
  if (clients_.below(200) > 0 || !pin_wishes_.empty()) return;
  const CacheScope scope = scopes_.scope_of(clients_.leave_salt());
  scheduler_.drop_scope(scope);
  tell([&](Checker& checker) { checker.on_scope_drop(scope); });
}

// Whoever still lives is cancelled; their streams outlive the engine's work.
void Simulation::stop() {
  inbox_->close();
  for (auto& [seq, request] : requests_) {
    if (request.stage == Stage::kFinished) continue;
    ++totals_.stopped;
    if (request.answer.cut == Answer::Cut::kNot) request.answer.cut = Answer::Cut::kCancelled;
  }
  loop_.beat();
  look_around();
  read_some();
  tell([](Checker& checker) { checker.on_silence(); });
}

void Simulation::count() {
  const EngineStats stats = loop_.stats();
  totals_.rows = static_cast<int64_t>(stats.rows);
  totals_.copies = static_cast<int64_t>(stats.block_copies);
  totals_.evictions = static_cast<int64_t>(stats.evictions);
}

}  // namespace quire::sim
