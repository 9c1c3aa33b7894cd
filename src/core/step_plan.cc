#include "core/step_plan.h"

namespace quire {

int StepPlan::row_count() const {
  int rows = 0;
  for (const PlannedSequence& sequence : sequences) rows += static_cast<int>(sequence.tokens.size());
  return rows;
}

int StepPlan::logit_row_count() const {
  int rows = 0;
  for (const PlannedSequence& sequence : sequences) {
    rows += static_cast<int>(sequence.tokens.size()) - sequence.logits_from;
  }
  return rows;
}

}  // namespace quire
