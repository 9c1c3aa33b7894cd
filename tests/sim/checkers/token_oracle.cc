#include "tests/sim/checkers/token_oracle.h"

#include <algorithm>
#include <cmath>

namespace quire::sim {
namespace {

bool is_close(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-5 * (1 + std::abs(b));
}

bool is_beginning(const Tokens& part, const Tokens& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

bool are_equal(const std::optional<TokenLogprob>& a, const std::optional<TokenLogprob>& b) {
  if (a.has_value() != b.has_value()) return false;
  return !a || (a->token_id == b->token_id &&
                is_close(static_cast<double>(a->logprob), static_cast<double>(b->logprob)));
}

}  // namespace

void TokenOracle::on_answer(const Answered& answered) {
  const AnswerAlone alone = answer_alone(options().geometry, answered.wish);
  check_positions(answered, alone);
  if (alone.breaks) return check_broken(answered);
  for (size_t choice = 0; choice < answered.answer.choices.size(); ++choice)
    check_choice(answered, choice, alone.choices[choice]);
}

void TokenOracle::check_choice(const Answered& answered, size_t choice, const ChoiceAlone& alone) {
  const ChoiceAnswer& said = answered.answer.choices[choice];
  const auto name = fmt::format("request {}, choice {}", answered.request.value, choice);
  if (!is_beginning(said.tokens, alone.tokens))
    return violated("{}: it says [{}], alone [{}]", name, fmt::join(said.tokens, " "),
                    fmt::join(alone.tokens, " "));
  if (said.finish == FinishReason::kNone || said.finish == FinishReason::kCancelled) {
    const auto allowed = said.finish == FinishReason::kNone ? Answer::Cut::kDropped : Answer::Cut::kCancelled;
    if (answered.answer.cut != allowed)
      violated("{}: it ends as {} and nobody wanted that", name, finish_reason_name(said.finish));
    const std::string read = text_of(said.tokens, answered.wish.sampling);
    const bool right = said.finish == FinishReason::kNone ? read.starts_with(said.text) : read == said.text;
    if (!right) violated("{}: its text is \"{}\", of these tokens \"{}\"", name, said.text, read);
    return;
  }
  if (said.finish != alone.finish)
    violated("{}: it ends as {}, alone as {}", name, finish_reason_name(said.finish),
             finish_reason_name(alone.finish));
  if (said.tokens.size() != alone.tokens.size())
    violated("{}: {} tokens came, alone {}", name, said.tokens.size(), alone.tokens.size());
  if (said.text != alone.text) violated("{}: its text is \"{}\", alone \"{}\"", name, said.text, alone.text);
  const std::optional<double> score = answered.answer.summary.choices[choice].score;
  if (score.has_value() != alone.score.has_value() || (score && !is_close(*score, *alone.score)))
    violated("{}: its score is {}, alone {}", name, score.value_or(0), alone.score.value_or(0));
}

// Its logits are no numbers: all choices end with the error, unless its client was faster.
void TokenOracle::check_broken(const Answered& answered) {
  for (const ChoiceAnswer& said : answered.answer.choices) {
    const bool cut = answered.answer.cut != Answer::Cut::kNot;
    const bool failed = said.finish == FinishReason::kError && said.error.has_value();
    if (!said.tokens.empty() || (!failed && !cut))
      violated("request {} has no sane logits, yet ends as {} with {} tokens", answered.request.value,
               finish_reason_name(said.finish), said.tokens.size());
  }
}

void TokenOracle::check_positions(const Answered& answered, const AnswerAlone& alone) {
  const std::vector<PromptPosition>& said = answered.answer.positions;
  const bool whole = answered.answer.cut == Answer::Cut::kNot && !alone.breaks;
  if (said.size() > alone.positions.size() || (whole && said.size() != alone.positions.size()))
    return violated("request {}: {} prompt positions came, alone {}", answered.request.value, said.size(),
                    alone.positions.size());
  for (size_t p = 0; p < said.size(); ++p) {
    const PromptPosition& expected = alone.positions[p];
    const bool has_top = answered.wish.prompt_logprobs.value_or(0) > 0;
    const bool same_top = has_top
                              ? !said[p].top.empty() && are_equal(said[p].top.front(), expected.top.front())
                              : said[p].top.empty();
    if (!is_close(said[p].logsumexp, expected.logsumexp) || !are_equal(said[p].next, expected.next) ||
        !same_top)
      return violated("request {}: prompt position {} is not what it is alone", answered.request.value, p);
  }
}

}  // namespace quire::sim
