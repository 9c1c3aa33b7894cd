#include "cli/choice_options.h"

#include <optional>
#include <string_view>

#include "cli/command_options.h"

namespace quire {
namespace {

std::optional<EarlyStopping> early_stopping_from_name(std::string_view name) {
  if (name == "heuristic") return EarlyStopping::kHeuristic;
  if (name == "full") return EarlyStopping::kWhenFull;
  if (name == "never") return EarlyStopping::kNever;
  return std::nullopt;
}

}  // namespace

void add_choice_options(CLI::App& app, ChoiceArguments& arguments) {
  add_number<int>(app, {"--n", "Answers; answer i has the seed SEED + i", "N"}, {.min = 1, .max = 128},
                  arguments.n);
  add_number<int>(app, {"--best-of", "Sample K answers, keep the N most probable per token; 0 = N", "K"},
                  {.min = 0, .max = 128}, arguments.best_of);
  add_number<int>(app, {"--beam-width", "Beam search of that width instead of sampling", "W"},
                  {.min = 1, .max = 64}, arguments.beam_width);
  BeamSearchParams& beam = arguments.beam;
  arguments.beam_options = {
      add_number<float>(app, {"--length-penalty", "Score = log-probability / length^X", "X"},
                        {.min = -10, .max = 10}, beam.length_penalty),
      add_text(app,
               {"--early-stopping",
                "End the beam search at the first W finished sequences (full), when no "
                "better one is likely (heuristic) or possible (never)",
                "WHEN"},
               arguments.early_stopping),
      add_number<int>(app, {"--beam-groups", "Diverse beam search in G groups; G divides W", "G"},
                      {.min = 1, .max = 64}, beam.groups),
      add_number<float>(
          app, {"--diversity-penalty", "Cost of a token per beam of an earlier group that took it", "X"},
          {.min = 0, .max = 100}, beam.diversity_penalty)};
}

Result<void> apply_choices(const ChoiceArguments& arguments, Request& request) {
  request.n = arguments.n;
  request.best_of = arguments.best_of;
  if (!arguments.beam_width) {
    for (const CLI::Option* option : arguments.beam_options) {
      if (was_given(option)) {
        return fail(ErrorCode::kInvalidArgument, "--beam-width",
                    "--length-penalty, --early-stopping, --beam-groups and --diversity-penalty need "
                    "--beam-width");
      }
    }
    return {};
  }
  request.beam = arguments.beam;
  request.beam->width = *arguments.beam_width;
  const auto when = early_stopping_from_name(arguments.early_stopping);
  if (!when) {
    return fail(ErrorCode::kInvalidArgument, "--early-stopping",
                "--early-stopping: '{}' is not known; known are heuristic, full, never",
                arguments.early_stopping);
  }
  request.beam->early_stopping = *when;
  return {};
}

}  // namespace quire
