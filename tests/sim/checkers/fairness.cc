#include "tests/sim/checkers/fairness.h"

#include <algorithm>
#include <limits>

#include "sched/policy.h"

namespace quire::sim {

void Fairness::on_arrival(const Arrived& arrived) {
  const Request& wish = arrived.wish;
  waiting_[arrived.request] = {.virtual_arrival = steps_ - kAgeingSteps * wish.priority};
  requests_[arrived.request] = {.pace = wish.beam ? GroupPace::kTogether : GroupPace::kFree,
                                .salt = wish.cache_salt};
}

void Fairness::on_plan(const Planned& step) {
  ++steps_;
  std::set<SeqId> planned;
  for (const PlannedSequence& sequence : step.plan.sequences) planned.insert(sequence.seq);
  check_queue(step.living);
  check_decodes(planned);
}

// Whether another computes a block that the request begins with.
bool Fairness::has_leader(SeqId request, std::span<const LivingSequence> living) const {
  const auto block_tokens = static_cast<size_t>(options().geometry.block_tokens);
  const std::span<const TokenId> own = scheduler().tokens(request);
  if (own.size() < block_tokens) return false;
  return std::ranges::any_of(living, [&](const LivingSequence& other) {
    const std::span<const TokenId> tokens = scheduler().tokens(other.seq);
    return other.request != request && requests_.at(other.request).salt == requests_.at(request).salt &&
           tokens.size() >= block_tokens &&
           scheduler().figures(other.seq).state == SequenceState::kPrefilling &&
           std::equal(own.begin(), own.begin() + options().geometry.block_tokens, tokens.begin());
  });
}

// Who came in by this plan, rows or not, against those who still wait.
void Fairness::check_queue(std::span<const LivingSequence> living) {
  int64_t last = std::numeric_limits<int64_t>::min();
  std::erase_if(waiting_, [&](const auto& entry) {
    if (!scheduler().contains(entry.first)) return true;  // left before its turn
    const bool admitted = scheduler().figures(entry.first).state != SequenceState::kWaiting;
    if (admitted) last = std::max(last, entry.second.virtual_arrival);
    return admitted;
  });
  for (auto& [request, waiting] : waiting_) {
    if (last <= waiting.virtual_arrival + kCachedStepsMax) continue;
    if (!has_leader(request, living)) violated("request {} is overtaken", request.value);
    if (++waiting.overtaken > kLeaderWaitsMax) violated("request {} is overtaken for ever", request.value);
  }
}

void Fairness::check_decodes(const std::set<SeqId>& planned) {
  std::map<SeqId, std::pair<int, int>> beams;  // request → (beams with a row, beams without)
  for (const auto& [seq, before] : before_) {
    const SequenceFigures& figures = before.figures;
    if (!scheduler().contains(seq) || scheduler().figures(seq).preemptions != figures.preemptions) continue;
    const bool served = planned.contains(seq);
    const bool one_left = figures.computed_tokens + 1 == figures.prompt_tokens + figures.generated_tokens;
    if (figures.state != SequenceState::kDecoding || !one_left) continue;
    if (requests_.at(before.request).pace == GroupPace::kTogether) {
      ++(served ? beams[before.request].first : beams[before.request].second);
    } else if (!served) {
      violated("sequence {} decodes and has no row", seq.value);
    }
  }
  for (const auto& [request, rows] : beams)
    if (rows.first > 0 && rows.second > 0)
      violated("of the beams of request {} {} advance and {} do not", request.value, rows.first, rows.second);
}

void Fairness::on_beat(std::span<const LivingSequence> living) {
  before_.clear();
  for (const LivingSequence& sequence : living)
    before_[sequence.seq] = {.request = sequence.request, .figures = scheduler().figures(sequence.seq)};
}

void Fairness::on_gone(SeqId request) {
  waiting_.erase(request);
  requests_.erase(request);
}

}  // namespace quire::sim
