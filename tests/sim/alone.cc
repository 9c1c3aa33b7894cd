#include "tests/sim/alone.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "engine/beam_reference.h"
#include "engine/request_check.h"
#include "engine/sampler.h"

namespace quire::sim {
namespace {

constexpr TokenId kEnds[] = {kEos};

bool is_end(TokenId token, const SamplingParams& sampling) {
  if (token == kEos && !sampling.ignore_eos) return true;
  return std::ranges::find(sampling.stop_token_ids, token) != sampling.stop_token_ids.end();
}

struct StoppedText {
  std::string text;
  bool stopped = false;
};

// Letter by letter, as somebody reads it.
StoppedText read(const Tokens& tokens, const SamplingParams& sampling) {
  StoppedText read;
  for (TokenId token : tokens) {
    if (token >= kEos || is_end(token, sampling)) continue;
    read.text += toy_pieces()[static_cast<size_t>(token)];
    size_t longest = 0;
    for (const std::string& stop : sampling.stop)
      if (read.text.ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest == 0) continue;
    read.text.resize(read.text.size() - longest);
    read.stopped = true;
    return read;
  }
  return read;
}

FinishReason finish_of(const Tokens& tokens, const SamplingParams& sampling) {
  if (is_end(tokens.back(), sampling) || read(tokens, sampling).stopped) return FinishReason::kStop;
  return std::ssize(tokens) >= sampling.max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

TokenId best_of_row(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

double logsumexp(std::span<const float> logits) {
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum);
}

// Nothing but the model decides.
bool is_plain(const SamplingParams& sampling) {
  return sampling.temperature == 0 && sampling.repetition_penalty == 1 && sampling.frequency_penalty == 0 &&
         sampling.min_tokens == 0;
}

PromptPosition position_of(std::span<const float> logits, const TokenId* next) {
  PromptPosition position{.logsumexp = logsumexp(logits)};
  const auto logprob = [&](TokenId token) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)]) - position.logsumexp);
  };
  if (next != nullptr) position.next = TokenLogprob{*next, logprob(*next)};
  position.top = {{best_of_row(logits), logprob(best_of_row(logits))}};
  return position;
}

ChoiceAlone sample(ToySequence sequence, const Request& request, uint64_t seed) {
  SamplingParams params = request.sampling;
  const bool ranked = samples_wanted(request) > request.n;
  if (ranked) params.logprobs = 0;
  Sampler sampler(params, {.prompt = request.prompt_token_ids, .end_tokens = kEnds, .seed = seed});
  SamplerScratch scratch;
  ChoiceAlone choice;
  double logprob_sum = 0;
  while (choice.finish == FinishReason::kNone) {
    const auto position = static_cast<Position>(request.prompt_token_ids.size() + choice.tokens.size());
    const TokenChoice drawn = sampler.sample(sequence.logits(), position, scratch).value();
    const TokenId token = is_plain(params) ? best_of_row(sequence.logits()) : drawn.id;
    if (ranked) logprob_sum += static_cast<double>(drawn.logprob->logprob);
    sampler.accept(token);
    sequence.append(token);
    choice.tokens.push_back(token);
    choice.finish = finish_of(choice.tokens, params);
  }
  choice.text = text_of(choice.tokens, params);
  if (ranked) choice.score = logprob_sum / static_cast<double>(choice.tokens.size());
  return choice;
}

std::vector<ChoiceAlone> samples(const ToySequence& prompt, const Request& request) {
  std::vector<ChoiceAlone> choices;
  for (int i = 0; i < samples_wanted(request); ++i)
    choices.push_back(sample(prompt, request, *request.sampling.seed + static_cast<uint64_t>(i)));
  std::ranges::stable_sort(choices, std::ranges::greater(),
                           [](const ChoiceAlone& choice) { return choice.score.value_or(0); });
  choices.resize(static_cast<size_t>(request.n));
  return choices;
}

// The log-probabilities behind each beam of a search; remembers those of its beginnings.
class BeamRows {
 public:
  BeamRows(ToySequence prompt, const Request& request) : request_(request) {
    sequences_.emplace(Tokens{}, std::move(prompt));
  }

  std::vector<double> next(const Tokens& tokens) {
    const SamplingParams& params = request_.sampling;
    Sampler sampler(params, {.prompt = request_.prompt_token_ids, .end_tokens = kEnds});
    for (TokenId token : tokens) sampler.accept(token);
    const auto position = static_cast<Position>(request_.prompt_token_ids.size() + tokens.size());
    std::vector<double> logprobs(kVocab, -HUGE_VAL);
    const auto ranked =
        sampler.rank(sequence(tokens).logits(), {.position = position, .count = kVocab}, scratch_).value();
    for (const RankedToken& token : ranked) logprobs[static_cast<size_t>(token.id)] = token.logprob;
    return logprobs;
  }

 private:
  const ToySequence& sequence(const Tokens& tokens) {
    const auto found = sequences_.find(tokens);
    if (found != sequences_.end()) return found->second;
    ToySequence longer = sequences_.at(Tokens(tokens.begin(), tokens.end() - 1));
    longer.append(tokens.back());
    return sequences_.emplace(tokens, std::move(longer)).first->second;
  }

  const Request& request_;
  std::map<Tokens, ToySequence> sequences_;
  SamplerScratch scratch_;
};

std::vector<ChoiceAlone> beams(const ToySequence& prompt, const Request& request) {
  const SamplingParams& params = request.sampling;
  BeamRows rows(prompt, request);
  const auto groups =
      BeamReference(*request.beam, params.max_tokens,
                    {.next = [&](const Tokens& tokens) { return rows.next(tokens); },
                     .has_ended =
                         [&](const Tokens& tokens) {
                           return is_end(tokens.back(), params) || read(tokens, params).stopped;
                         }})
          .run();
  std::vector<ChoiceAlone> choices;
  const int per_group = request.beam->width / request.beam->groups;
  for (size_t place = 0; place < static_cast<size_t>(per_group); ++place) {
    const auto first = std::ssize(choices);
    for (const auto& results : groups) {
      if (place >= results.size()) continue;
      const Tokens& tokens = results[place].tokens;
      choices.push_back({.tokens = tokens,
                         .text = text_of(tokens, params),
                         .finish = finish_of(tokens, params),
                         .score = results[place].score});
    }
    std::ranges::stable_sort(choices.begin() + first, choices.end(), std::ranges::greater(),
                             [](const ChoiceAlone& choice) { return *choice.score; });
  }
  choices.resize(static_cast<size_t>(request.n), {.finish = FinishReason::kError});  // too few tokens
  return choices;
}

}  // namespace

std::string text_of(const Tokens& tokens, const SamplingParams& sampling) {
  return read(tokens, sampling).text;
}

AnswerAlone answer_alone(const KvGeometry& geometry, const Request& request) {
  AnswerAlone answer;
  ToySequence sequence(geometry);
  const Tokens& prompt = request.prompt_token_ids;
  for (size_t p = 0; p < prompt.size(); ++p) {
    sequence.append(prompt[p]);
    const bool wanted =
        request.prompt_logprobs || (p + 1 == prompt.size() && request.sampling.max_tokens > 0);
    if (wanted && prompt[p] == kBroken) {
      answer.breaks = true;
      return answer;
    }
    if (request.prompt_logprobs)
      answer.positions.push_back(
          position_of(sequence.logits(), p + 1 < prompt.size() ? &prompt[p + 1] : nullptr));
  }
  if (request.sampling.max_tokens == 0) {
    answer.choices.resize(static_cast<size_t>(request.n), {.finish = FinishReason::kLength});
  } else {
    answer.choices = request.beam ? beams(sequence, request) : samples(sequence, request);
  }
  return answer;
}

}  // namespace quire::sim
