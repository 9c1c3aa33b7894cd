#include "tests/sim/simulation.h"

#include <algorithm>
#include <utility>

#include "tests/sim/checkers/block_conservation.h"
#include "tests/sim/checkers/block_reads.h"
#include "tests/sim/checkers/door.h"
#include "tests/sim/checkers/fairness.h"
#include "tests/sim/checkers/liveness.h"
#include "tests/sim/checkers/pinned_prefixes.h"
#include "tests/sim/checkers/preemptions.h"
#include "tests/sim/checkers/token_oracle.h"

namespace quire::sim {
namespace {

// The manual clock: a step takes this long.
double step_ms(int decode_rows, int prefill_rows) {
  return 3.0 + 0.05 * decode_rows + 0.5 * prefill_rows;
}

}  // namespace

Totals& Totals::operator+=(const Totals& other) {
  requests += other.requests;
  refused += other.refused;
  cancelled += other.cancelled;
  steps += other.steps;
  rows += other.rows;
  abandoned += other.abandoned;
  preemptions += other.preemptions;
  hits += other.hits;
  copies += other.copies;
  forks += other.forks;
  pins += other.pins;
  for (size_t i = 0; i < ended_as.size(); ++i) ended_as[i] += other.ended_as[i];
  return *this;
}

Simulation::Simulation(const World& world, uint64_t seed)
    : world_(world),
      options_(options_of(world)),
      scheduler_(options_),
      model_(options_.geometry, kVocab),
      clients_(world, seed) {
  checkers_.push_back(std::make_unique<BlockConservation>(scheduler_, options_));
  checkers_.push_back(std::make_unique<BlockReads>(scheduler_, options_));
  checkers_.push_back(std::make_unique<TokenOracle>(scheduler_, options_));
  checkers_.push_back(std::make_unique<Liveness>(scheduler_, options_));
  checkers_.push_back(std::make_unique<Fairness>(scheduler_, options_));
  checkers_.push_back(std::make_unique<Preemptions>(scheduler_, options_));
  checkers_.push_back(std::make_unique<Door>(scheduler_, options_));
  checkers_.push_back(std::make_unique<PinnedPrefixes>(scheduler_, options_));
}

Simulation::~Simulation() {
  while (!requests_.empty()) end_request(requests_.begin()->first);
}

std::optional<std::string> Simulation::first_violation() const {
  for (const auto& checker : checkers_)
    if (!checker->violations().empty())
      return fmt::format("step {}: {}", totals_.steps, checker->violations().front());
  return std::nullopt;
}

std::optional<std::string> Simulation::run(int requests, int64_t steps_max) {
  while ((totals_.requests < requests || !requests_.empty()) && totals_.steps < steps_max) {
    if (clients_.below(3) == 0)
      for (int i = clients_.below(world_.requests_per_step) + 1; i > 0 && totals_.requests < requests; --i)
        arrive();
    cancel_some();
    read_slowly();
    pin_some();
    step();
    if (requests_.empty()) tell([](Checker& checker) { checker.on_silence(); });
    if (auto violation = first_violation()) return violation;
  }
  return std::nullopt;
}

void Simulation::arrive() {
  const SeqId seq{++ids_};
  ClientRequest client = clients_.draw(seq);
  ++totals_.requests;
  if (const auto answer = scheduler_.check_admissible(client.sequence); !answer) {
    ++totals_.refused;
    tell([&](Checker& checker) { checker.on_refusal({.client = client, .error = answer.error()}); });
    return;
  }
  tell([&](Checker& checker) { checker.on_arrival({.client = client, .step = totals_.steps}); });
  const Tokens& prompt = client.sequence.prompt;
  sequences_[seq] = {.seq = seq,
                     .request = seq,
                     .tokens = prompt,
                     .turns = {},
                     .prompt_answers = {},
                     .prompt_tokens = static_cast<int>(prompt.size())};
  scheduler_.add(client.sequence);
  requests_[seq] = {.client = std::move(client), .step = totals_.steps, .sequences = {seq}, .forked = false};
}

void Simulation::cancel(SeqId request) {
  ++totals_.cancelled;
  const SequenceFigures figures = scheduler_.figures(requests_.at(request).sequences.front());
  ++totals_.ended_as[static_cast<size_t>(figures.state)];
  end_request(request);
}

void Simulation::cancel_some() {
  std::vector<SeqId> cancelled;
  for (const auto& [seq, request] : requests_) {
    const int after = request.client.cancel_after;
    const bool preempted = scheduler_.figures(request.sequences.front()).state == SequenceState::kPreempted;
    if ((after >= 0 && totals_.steps - request.step >= after) ||
        (preempted && request.client.leaves_when_preempted))
      cancelled.push_back(seq);
  }
  for (SeqId seq : cancelled) cancel(seq);
  // Now and then one sample of several is given up.
  if (requests_.empty() || clients_.below(20) > 0) return;
  auto request = requests_.begin();
  std::advance(request, clients_.below(static_cast<int>(requests_.size())));
  if (request->second.sequences.size() > 1) end(request->second.sequences.back());
}

// A reader who has fallen behind leaves when it has read enough, long after the tokens were made.
void Simulation::read_slowly() {
  std::vector<SeqId> left;
  for (auto& [seq, request] : requests_) {
    const ClientRequest& client = request.client;
    if (client.leave_after < 0 || (totals_.steps - request.step) % client.read_every != 0) continue;
    const LiveSequence& first = sequences_.at(request.sequences.front());
    if (request.read_tokens < std::ssize(first.turns)) ++request.read_tokens;
    if (request.read_tokens > client.leave_after) left.push_back(seq);
  }
  for (SeqId seq : left) cancel(seq);
}

void Simulation::pin_some() {
  const auto now_ns = static_cast<int64_t>(now_ms_ * 1e6);
  scheduler_.expire_pins(now_ns);
  tell([&](Checker& checker) { checker.on_time(now_ns); });
  if (clients_.below(200) == 0) {
    const CacheScope scope = clients_.leave_scope();
    scheduler_.drop_scope(scope);
    tell([&](Checker& checker) { checker.on_scope_drop(scope); });
  }
  if (world_.pinned_blocks_max == 0 || clients_.below(2) > 0) return;
  if (!pins_.empty() && clients_.below(4) == 0) {
    const PinId pin = pins_.back();
    pins_.pop_back();
    // Its time may have been over.
    if (scheduler_.unpin_prefix(pin)) tell([&](Checker& checker) { checker.on_unpin(pin); });
    return;
  }
  const Tokens prefix = clients_.draw_prefix();
  const PinRequest request{
      .scope = clients_.draw_scope(), .tokens = prefix, .now_ns = now_ns, .ttl_ms = 1 + clients_.below(300)};
  const auto pin = scheduler_.pin_prefix(request);
  if (!pin) return;
  ++totals_.pins;
  pins_.push_back(*pin);
  tell([&](Checker& checker) {
    checker.on_pin({.id = *pin,
                    .scope = request.scope,
                    .tokens = prefix,
                    .expires_ns = now_ns + request.ttl_ms * 1'000'000});
  });
}

void Simulation::step() {
  const ScheduledStep step = scheduler_.plan_step();
  ++totals_.steps;
  tell([&](Checker& checker) { checker.on_plan(step); });
  if (clients_.below(20) == 0) {
    ++totals_.abandoned;
    scheduler_.abandon_step();
    tell([](Checker& checker) { checker.on_abandon(); });
    return;
  }
  if (first_violation()) {
    scheduler_.abandon_step();
    return;
  }
  std::vector<Turn> turns;
  compute(step, turns);
  tell([&](Checker& checker) { checker.on_computed(step); });
  commit(step, turns);
}

void Simulation::compute(const ScheduledStep& step, std::vector<Turn>& turns) {
  for (const BlockCopy& copy : step.copies) model_.copy(copy);
  totals_.copies += std::ssize(step.copies);
  totals_.rows += step.plan.row_count();
  const std::vector<TokenId> next = model_.forward(step.plan);
  size_t row = 0;
  for (size_t i = 0; i < step.plan.sequences.size(); ++i) {
    const PlannedSequence& planned = step.plan.sequences[i];
    const size_t rows = planned.tokens.size() - static_cast<size_t>(planned.logits_from);
    take_answers(planned, std::span(next).subspan(row, rows));
    row += rows;
    const bool completes = std::ranges::find(step.completing, static_cast<int>(i)) != step.completing.end();
    if (completes) turns.push_back({.seq = planned.seq, .model_token = next[row - 1]});
  }
}

void Simulation::take_answers(const PlannedSequence& planned, std::span<const TokenId> next) {
  LiveSequence& sequence = sequences_.at(planned.seq);
  if (requests_.at(sequence.request).client.sequence.prompt_logits != PromptLogits::kAll) return;
  for (size_t i = 0; i < next.size(); ++i) {
    const int position = planned.first_position + planned.logits_from + static_cast<int>(i);
    if (position < sequence.prompt_tokens) sequence.prompt_answers.push_back(next[i]);
  }
}

void Simulation::append(LiveSequence& sequence, TokenId model_token, int turn) {
  sequence.tokens.push_back((model_token + turn) % kVocab);
  sequence.turns.push_back(turn);
}

void Simulation::commit(const ScheduledStep& step, const std::vector<Turn>& turns) {
  std::vector<SampledToken> sampled;
  std::map<SeqId, std::vector<Turn>> by_request;
  for (const Turn& turn : turns) {
    LiveSequence& sequence = sequences_.at(turn.seq);
    by_request[sequence.request].push_back(turn);
    if (requests_.at(sequence.request).client.sequence.max_tokens == 0) continue;
    append(sequence, turn.model_token, 0);
    sampled.push_back({.seq = turn.seq, .token = sequence.tokens.back()});
  }
  const auto decodes = std::ranges::count_if(
      step.plan.sequences, [](const PlannedSequence& planned) { return planned.tokens.size() == 1; });
  const int prefill_rows = step.plan.row_count() - static_cast<int>(decodes);
  scheduler_.commit_step(sampled);
  const double ms = step_ms(static_cast<int>(decodes), prefill_rows);
  now_ms_ += ms;
  scheduler_.note_step_time(
      {.decode_rows = static_cast<int>(decodes), .prefill_rows = prefill_rows, .ms = ms});
  for (auto& [request, its_turns] : by_request) go_on(requests_.at(request), its_turns);
  tell([](Checker& checker) { checker.on_commit(); });
}

bool Simulation::has_ended(const LiveSequence& sequence, const ClientRequest& client) const {
  if (std::ssize(sequence.turns) >= client.sequence.max_tokens) return true;
  return !client.ignores_eos && !sequence.turns.empty() && sequence.tokens.back() == kEos;
}

void Simulation::go_on(LiveRequest& request, const std::vector<Turn>& turns) {
  const ClientRequest client = request.client;
  if (client.sequence.max_tokens > 0 && client.sequence.sequences > 1) {
    if (client.use == Use::kSamples && !request.forked) fork_samples(request, turns.front());
    if (client.use == Use::kBeams) branch_beams(request, turns);
  }
  // A request that ends with its last sequence is gone after that.
  const std::vector<SeqId> members = request.sequences;
  for (SeqId seq : members) {
    const auto sequence = sequences_.find(seq);
    const bool moved = std::ranges::any_of(turns, [&](const Turn& turn) { return turn.seq == seq; });
    if (sequence == sequences_.end()) continue;
    if ((moved || client.sequence.max_tokens > 0) && has_ended(sequence->second, client)) end(seq);
  }
}

void Simulation::fork_samples(LiveRequest& request, const Turn& turn) {
  request.forked = true;
  for (int i = 1; i < request.client.sequence.sequences; ++i) fork(request, turn, i);
}

// As beam search does it: some beams go on in several ways, others are dropped, the width stays.
void Simulation::branch_beams(LiveRequest& request, const std::vector<Turn>& turns) {
  std::vector<Turn> kept;
  std::vector<SeqId> dropped;
  for (const Turn& turn : turns) {
    if (!kept.empty() && clients_.below(4) == 0) {
      dropped.push_back(turn.seq);
    } else {
      kept.push_back(turn);
    }
  }
  const auto width = static_cast<size_t>(request.client.sequence.sequences);
  for (int i = 0; request.sequences.size() - dropped.size() < width; ++i)
    fork(request, kept[static_cast<size_t>(clients_.below(static_cast<int>(kept.size())))], 1 + i);
  for (SeqId seq : dropped) end(seq);
}

void Simulation::fork(LiveRequest& request, const Turn& parent, int turn) {
  const LiveSequence& from = sequences_.at(parent.seq);
  LiveSequence child = from;
  child.seq = {++ids_};
  child.tokens.pop_back();
  child.turns.pop_back();
  append(child, parent.model_token, turn);
  scheduler_.fork({.parent = parent.seq, .child = child.seq, .token = child.tokens.back()});
  ++totals_.forks;
  tell([&](Checker& checker) { checker.on_fork(from, child); });
  request.sequences.push_back(child.seq);
  sequences_.emplace(child.seq, std::move(child));
}

void Simulation::end(SeqId seq) {
  const auto sequence = sequences_.find(seq);
  tell([&](Checker& checker) { checker.on_end(sequence->second); });
  const SequenceFigures figures = scheduler_.figures(seq);
  totals_.preemptions += figures.preemptions;
  totals_.hits += figures.cached_tokens > 0 ? 1 : 0;
  const SeqId request = sequence->second.request;
  clients_.remember(std::move(sequence->second.tokens));
  scheduler_.finish(seq);
  sequences_.erase(sequence);
  std::erase(requests_.at(request).sequences, seq);
  if (!requests_.at(request).sequences.empty()) return;
  requests_.erase(request);
  tell([&](Checker& checker) { checker.on_request_end(request); });
}

void Simulation::end_request(SeqId request) {
  const std::vector<SeqId> members = requests_.at(request).sequences;
  for (SeqId seq : members) end(seq);
}

}  // namespace quire::sim
