#include "cli/sampling_options.h"

#include <utility>
#include <vector>

#include "cli/command_options.h"

namespace quire {
namespace {

constexpr size_t kStopsMax = 16;
constexpr NumberRange<float> kProbability{.min = 0, .max = 1};
constexpr NumberRange<float> kPositiveProbability{.min = 0, .max = 1, .lower = Bound::kExcluded};
constexpr NumberRange<float> kPenalty{.min = -2, .max = 2};
constexpr NumberRange<int> kCount{.min = 0};

void add_filters(CLI::App& app, SamplingParams& sampling) {
  add_number<float>(app, {"--temperature", "0 is greedy", "X"}, {.min = 0, .max = 100}, sampling.temperature);
  add_number<int>(app, {"--top-k", "Only the K most probable tokens; 0 = all", "K"}, kCount, sampling.top_k);
  add_number<float>(app, {"--top-p", "Smallest set whose probability reaches P", "P"}, kPositiveProbability,
                    sampling.top_p);
  add_number<float>(app, {"--min-p", "Drop what is below P times the best probability", "P"}, kProbability,
                    sampling.min_p);
  add_number<float>(app, {"--typical-p", "Locally typical set of mass P", "P"}, kPositiveProbability,
                    sampling.typical_p);
}

void add_penalties(CLI::App& app, SamplingParams& sampling) {
  add_number<float>(app, {"--repetition-penalty", "Over prompt and answer; 1 = none", "X"},
                    {.min = 0, .max = 10, .lower = Bound::kExcluded}, sampling.repetition_penalty);
  add_number<float>(app, {"--presence-penalty", "Once per token of the answer", "X"}, kPenalty,
                    sampling.presence_penalty);
  add_number<float>(app, {"--frequency-penalty", "Per occurrence in the answer", "X"}, kPenalty,
                    sampling.frequency_penalty);
  add_repeated(app,
               {"--logit-bias", "Add B in [-100, 100] to the logit of token ID; may be repeated", "ID=B"},
               [&sampling](const std::string& text) -> Result<void> {
                 sampling.logit_bias.push_back(TRY(parse_logit_bias(text)));
                 return {};
               });
}

void add_stops(CLI::App& app, SamplingParams& sampling) {
  add_repeated(app, {"--stop", "End before this text; may be repeated, at most 16 times", "TEXT"},
               [&sampling](const std::string& text) -> Result<void> {
                 if (text.empty())
                   return fail(ErrorCode::kInvalidArgument, "--stop", "--stop: the text is empty");
                 if (sampling.stop.size() == kStopsMax) {
                   return fail(ErrorCode::kInvalidArgument, "--stop", "--stop: given more than {} times",
                               kStopsMax);
                 }
                 sampling.stop.push_back(text);
                 return {};
               });
  add_repeated(
      app, {"--stop-token-id", "End at this token; may be repeated", "ID"},
      [&sampling](const std::string& text) -> Result<void> {
        sampling.stop_token_ids.push_back(TRY(parse_number<int32_t>(text, kCount, "--stop-token-id")));
        return {};
      });
  add_number<int>(app, {"--min-tokens", "No end before that many tokens", "N"}, kCount, sampling.min_tokens);
  add_flag(app, {"--ignore-eos", "Go on past end-of-sequence tokens"},
           [&sampling] { sampling.ignore_eos = true; });
}

}  // namespace

CLI::Option* add_sampling_options(CLI::App& app, SamplingParams& sampling) {
  CLI::Option* max_tokens =
      add_number<int>(app, {"--max-tokens", "Most tokens of an answer", "N"}, kCount, sampling.max_tokens);
  add_filters(app, sampling);
  add_number<uint64_t>(app, {"--seed", "Same seed, same answer; default: drawn from the system", "N"}, {},
                       sampling.seed);
  add_penalties(app, sampling);
  add_stops(app, sampling);
  add_number<int>(app, {"--logprobs", "With --json: log-probabilities of each token and of N best", "N"},
                  {.min = 0, .max = 20}, sampling.logprobs);
  return max_tokens;
}

Result<std::pair<int32_t, float>> parse_logit_bias(const std::string& text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return fail(ErrorCode::kInvalidArgument, "--logit-bias", "--logit-bias: '{}' is not of the form ID=B",
                text);
  }
  int32_t id = TRY(parse_number<int32_t>(text.substr(0, equals), kCount, "--logit-bias"));
  float bias = TRY(parse_number<float>(text.substr(equals + 1), {.min = -100, .max = 100}, "--logit-bias"));
  return std::pair{id, bias};
}

}  // namespace quire
