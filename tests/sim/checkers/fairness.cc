#include "tests/sim/checkers/fairness.h"

#include <algorithm>
#include <limits>

#include "sched/policy.h"

namespace quire::sim {

void Fairness::on_arrival(const Arrived& arrived) {
  const SequenceRequest& sequence = arrived.client.sequence;
  waiting_[sequence.seq] = {.virtual_arrival =
                                queue_place({.step = steps_, .priority = sequence.priority}).virtual_arrival};
  sequences_[sequence.seq] = {.request = sequence.seq, .pace = sequence.pace, .scope = sequence.scope};
}

void Fairness::on_fork(const LiveSequence& parent, const LiveSequence& child) {
  sequences_[child.seq] = sequences_.at(parent.seq);
}

void Fairness::on_plan(const ScheduledStep& step) {
  ++steps_;
  std::set<SeqId> planned;
  for (const PlannedSequence& sequence : step.plan.sequences) planned.insert(sequence.seq);
  check_queue();
  check_decodes(planned);
}

// Whether another computes a block that the request begins with.
bool Fairness::has_leader(SeqId request) const {
  const auto block_tokens = static_cast<size_t>(options_.geometry.block_tokens);
  const std::span<const TokenId> own = scheduler_.tokens(request);
  if (own.size() < block_tokens) return false;
  return std::ranges::any_of(sequences_, [&](const auto& other) {
    const auto& [seq, known] = other;
    const std::span<const TokenId> tokens = scheduler_.tokens(seq);
    return seq != request && known.scope == sequences_.at(request).scope && tokens.size() >= block_tokens &&
           scheduler_.figures(seq).state == SequenceState::kPrefilling &&
           std::equal(own.begin(), own.begin() + options_.geometry.block_tokens, tokens.begin());
  });
}

// Who came in by this plan, rows or not, against those who still wait.
void Fairness::check_queue() {
  int64_t last = std::numeric_limits<int64_t>::min();
  std::erase_if(waiting_, [&](const auto& entry) {
    const bool admitted = scheduler_.figures(entry.first).state != SequenceState::kWaiting;
    if (admitted) last = std::max(last, entry.second.virtual_arrival);
    return admitted;
  });
  for (auto& [request, waiting] : waiting_) {
    if (last <= waiting.virtual_arrival + kCachedStepsMax) continue;
    if (!has_leader(request)) violated("request {} is overtaken", request.value);
    if (++waiting.overtaken > kLeaderWaitsMax) violated("request {} is overtaken for ever", request.value);
  }
}

void Fairness::check_decodes(const std::set<SeqId>& planned) {
  std::map<SeqId, std::pair<int, int>> beams;  // request → (beams with a row, beams without)
  for (const auto& [seq, figures] : before_) {
    const auto known = sequences_.find(seq);
    if (known == sequences_.end() || scheduler_.figures(seq).preemptions != figures.preemptions) continue;
    const bool served = planned.contains(seq);
    const bool one_left = figures.computed_tokens + 1 == figures.prompt_tokens + figures.generated_tokens;
    if (figures.state != SequenceState::kDecoding || !one_left) continue;
    if (known->second.pace == GroupPace::kTogether) {
      ++(served ? beams[known->second.request].first : beams[known->second.request].second);
    } else if (!served) {
      violated("sequence {} decodes and has no row", seq.value);
    }
  }
  for (const auto& [request, rows] : beams)
    if (rows.first > 0 && rows.second > 0)
      violated("of the beams of request {} {} advance and {} do not", request.value, rows.first, rows.second);
}

void Fairness::on_commit() {
  before_.clear();
  for (const auto& [seq, known] : sequences_) before_[seq] = scheduler_.figures(seq);
}

}  // namespace quire::sim
