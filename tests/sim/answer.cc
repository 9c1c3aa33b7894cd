#include "tests/sim/answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire::sim {

int Answer::token_count() const {
  int count = 0;
  for (const ChoiceAnswer& choice : choices) count += static_cast<int>(choice.tokens.size());
  return count;
}

bool Answer::is_complete() const {
  return std::ranges::none_of(
      choices, [](const ChoiceAnswer& choice) { return choice.finish == FinishReason::kNone; });
}

void Answer::take(TokenEvent event) {
  ++events;
  ChoiceAnswer& choice = choices.at(static_cast<size_t>(event.choice));
  if (event.token_id) choice.tokens.push_back(*event.token_id);
  choice.text += event.text;
  choice.finish = event.finish;
  choice.error = std::move(event.error);
  choice.goes_back |= event.at_ms < choice.at_ms;
  choice.at_ms = event.at_ms;
  std::ranges::move(event.prompt_positions, std::back_inserter(positions));
}

}  // namespace quire::sim
