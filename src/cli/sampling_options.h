// The sampling options of `quire run`, checked against the ranges of SamplingParams.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "quire/engine.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire {

// Declares --max-tokens … --logprobs. `sampling` outlives parsing. Returns the option --max-tokens, to ask
// whether it was given.
CLI::Option* add_sampling_options(CLI::App& app, SamplingParams& sampling);

// "ID=B" as a pair; B in [-100, 100].
[[nodiscard]] Result<std::pair<int32_t, float>> parse_logit_bias(const std::string& text);

}  // namespace quire
