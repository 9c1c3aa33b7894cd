#include "tests/sim/checkers/token_oracle.h"

#include <algorithm>

namespace quire::sim {

TokenOracle::TokenOracle(const Scheduler& scheduler, SchedulerOptions options)
    : Checker(scheduler, std::move(options)), model_(options_.geometry, kVocab) {}

void TokenOracle::on_arrival(const Arrived& arrived) {
  prompt_logits_[arrived.client.sequence.seq] = arrived.client.sequence.prompt_logits;
}

void TokenOracle::on_end(const LiveSequence& sequence) {
  const std::span<const TokenId> known = scheduler_.tokens(sequence.seq);
  if (!std::ranges::equal(known, sequence.tokens))
    violated("sequence {}: the scheduler knows other tokens than its client", sequence.seq.value);
  const std::vector<TokenId> alone = model_.next_tokens(sequence.tokens);
  for (size_t i = 0; i < sequence.turns.size(); ++i) {
    const size_t at = static_cast<size_t>(sequence.prompt_tokens) + i;
    const TokenId expected = (alone[at - 1] + sequence.turns[i]) % kVocab;
    if (sequence.tokens[at] != expected) {
      violated("sequence {}: token {} is {}, alone it is {}", sequence.seq.value, at, sequence.tokens[at],
               expected);
      return;
    }
  }
  const bool wants_all = prompt_logits_.at(sequence.request) == PromptLogits::kAll;
  const bool has_all = std::ssize(sequence.prompt_answers) == sequence.prompt_tokens;
  if (wants_all && !sequence.turns.empty() && !has_all)
    violated("sequence {}: {} of {} prompt tokens have an answer", sequence.seq.value,
             sequence.prompt_answers.size(), sequence.prompt_tokens);
  if (!std::equal(sequence.prompt_answers.begin(), sequence.prompt_answers.end(), alone.begin()))
    violated("sequence {}: an answer to its prompt is not what it is alone", sequence.seq.value);
}

}  // namespace quire::sim
