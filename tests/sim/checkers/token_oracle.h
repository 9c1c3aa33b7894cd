#pragma once

#include "tests/sim/alone.h"
#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// Every choice says what it says alone, without blocks and neighbours, token for token and letter for letter,
// and ends as it ends alone; one that was cut off says a beginning of it. Prompt positions come once each and
// in order.
class TokenOracle : public Checker {
 public:
  using Checker::Checker;
  void on_answer(const Answered& answered) override;

 private:
  void check_choice(const Answered& answered, size_t choice, const ChoiceAlone& alone);
  void check_broken(const Answered& answered);
  void check_positions(const Answered& answered, const AnswerAlone& alone);
};

}  // namespace quire::sim
