// The options of `quire run` that ask for more than one answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "quire/engine.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire {

struct ChoiceArguments {
  int n = 1;
  int best_of = 0;
  std::optional<int> beam_width;
  BeamSearchParams beam;  // but its width
  std::string early_stopping = "heuristic";
  std::vector<CLI::Option*> beam_options;  // that need --beam-width

  // Whether there is more to tell than one answer.
  [[nodiscard]] bool has_several() const { return n > 1 || best_of > 1 || beam_width; }
};

// Declares --n … --diversity-penalty. `arguments` outlives parsing.
void add_choice_options(CLI::App& app, ChoiceArguments& arguments);

// Puts them into the request. Errors name the option.
[[nodiscard]] Result<void> apply_choices(const ChoiceArguments& arguments, Request& request);

}  // namespace quire
