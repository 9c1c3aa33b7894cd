// What a client has read of its answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "quire/engine.h"
#include "tests/sim/toy_model.h"

namespace quire::sim {

struct ChoiceAnswer {
  Tokens tokens;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;
  double at_ms = 0;        // of the last event
  bool goes_back = false;  // an event was made before the one in front of it
};

struct Answer {
  std::vector<ChoiceAnswer> choices;
  std::vector<PromptPosition> positions;
  int events = 0;
  // Why it may lack its end: the client took its leave, or the engine was stopped. A dropped stream has none.
  enum class Cut : uint8_t { kNot, kCancelled, kDropped } cut = Cut::kNot;
  RequestSummary summary;

  [[nodiscard]] int token_count() const;
  [[nodiscard]] bool is_complete() const;
  void take(TokenEvent event);
};

}  // namespace quire::sim
