// What a request's answer is when it is alone: by the model's definition, without engine, scheduler and
// blocks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/kv_geometry.h"
#include "quire/engine.h"
#include "tests/sim/toy_model.h"

namespace quire::sim {

struct ChoiceAlone {
  Tokens tokens;
  std::string text;
  FinishReason finish = FinishReason::kNone;
  std::optional<double> score{};  // where choices are ranked
};

struct AnswerAlone {
  std::vector<ChoiceAlone> choices;
  std::vector<PromptPosition> positions;  // up to the first whose logits are not numbers
  bool breaks = false;                    // it ends with an error for want of them
};

// Greedy tokens are the model's own best ones; drawn ones come from the Sampler with the request's seed,
// beams from the plain search of beam_reference.h.
[[nodiscard]] AnswerAlone answer_alone(const KvGeometry& geometry, const Request& request);

// What tokens say, up to the first stop string.
[[nodiscard]] std::string text_of(const Tokens& tokens, const SamplingParams& sampling);

}  // namespace quire::sim
