#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/rng.h"

namespace quire {
namespace {

using Candidate = SamplerScratch::Candidate;

constexpr int kLogprobsMax = 20;
constexpr size_t kStopsMax = 16;
constexpr size_t kStopBytesMax = 4096;
constexpr float kImpossible = -std::numeric_limits<float>::infinity();

// A closed range; `above` excludes its lower end.
struct FloatRange {
  const char* field;
  float low;
  float high;
  enum class Low { kIncluded, kExcluded } low_end = Low::kIncluded;
};

Result<> check_float(float value, const FloatRange& range) {
  const bool excluded = range.low_end == FloatRange::Low::kExcluded;
  if (value <= range.high && (excluded ? value > range.low : value >= range.low)) return {};
  return fail(ErrorCode::kInvalidArgument, range.field, "{} is {}, it must lie in {}{}, {}]", range.field,
              value, excluded ? '(' : '[', range.low, range.high);
}

struct IntRange {
  const char* field;
  int64_t low;
  int64_t high;
};

Result<> check_int(int64_t value, const IntRange& range) {
  if (value >= range.low && value <= range.high) return {};
  if (range.high == std::numeric_limits<int>::max()) {
    return fail(ErrorCode::kInvalidArgument, range.field, "{} is {}, it must be at least {}", range.field,
                value, range.low);
  }
  return fail(ErrorCode::kInvalidArgument, range.field, "{} is {}, it must lie in [{}, {}]", range.field,
              value, range.low, range.high);
}

Result<> check_token_lists(const SamplingParams& params, int vocab_size) {
  const auto limit = static_cast<size_t>(vocab_size);
  if (params.logit_bias.size() > limit) {
    return fail(ErrorCode::kInvalidArgument, "logit_bias", "logit_bias has {} entries, limit is {}",
                params.logit_bias.size(), vocab_size);
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return fail(ErrorCode::kInvalidArgument, "logit_bias",
                  "logit_bias names token {}, the vocabulary has 0 to {}", id, vocab_size - 1);
    }
    if (!(bias >= -100 && bias <= 100)) {
      return fail(ErrorCode::kInvalidArgument, "logit_bias",
                  "logit_bias of token {} is {}, it must lie in [-100, 100]", id, bias);
    }
  }
  if (params.stop_token_ids.size() > limit) {
    return fail(ErrorCode::kInvalidArgument, "stop_token_ids", "stop_token_ids has {} entries, limit is {}",
                params.stop_token_ids.size(), vocab_size);
  }
  for (TokenId id : params.stop_token_ids) {
    if (id < 0 || id >= vocab_size) {
      return fail(ErrorCode::kInvalidArgument, "stop_token_ids",
                  "stop_token_ids names token {}, the vocabulary has 0 to {}", id, vocab_size - 1);
    }
  }
  return {};
}

Result<> check_stops(const std::vector<std::string>& stops) {
  if (stops.size() > kStopsMax) {
    return fail(ErrorCode::kInvalidArgument, "stop", "stop has {} strings, limit is {}", stops.size(),
                kStopsMax);
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return fail(ErrorCode::kInvalidArgument, "stop", "stop holds an empty string");
    if (stop.size() > kStopBytesMax) {
      return fail(ErrorCode::kInvalidArgument, "stop", "stop holds a string of {} bytes, limit is {}",
                  stop.size(), kStopBytesMax);
    }
  }
  return {};
}

double weight_of(std::span<const Candidate> candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank < b.rank : a.id < b.id;
}

// Keeps the shortest run of best-ranked candidates whose weight reaches `target`; at least one, in the order
// in which they stand. Halves the range in which the run must end, so the cost is linear.
void keep_leading(std::vector<Candidate>& candidates, double target) {
  constexpr ptrdiff_t kSortedAtOnce = 64;
  std::vector<Candidate> ranked = candidates;
  auto begin = ranked.begin(), end = ranked.end();
  double reached = 0;  // by all before `begin`
  while (end - begin > kSortedAtOnce) {
    auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, ranks_before);
    const double half = weight_of({begin, middle});
    if (reached + half >= target) {
      end = middle;
    } else {
      reached += half;
      begin = middle;
    }
  }
  std::sort(begin, end, ranks_before);
  while (begin != end && reached + begin->weight < target) reached += (begin++)->weight;
  if (begin == ranked.end()) return;  // all of them: rounding kept the sum below the target
  const Candidate last = begin != end ? *begin : *(end - 1);
  std::erase_if(candidates, [&](const Candidate& c) { return ranks_before(last, c); });
}

// Meister et al., "Locally Typical Sampling", 2023: tokens whose surprise is nearest to the entropy first.
void keep_typical(std::vector<Candidate>& candidates, double mass) {
  const double total = weight_of(candidates);
  double entropy = 0;
  for (Candidate& c : candidates) {
    c.rank = c.weight > 0 ? -std::log(c.weight / total) : std::numeric_limits<double>::infinity();
    if (c.weight > 0) entropy += c.weight / total * c.rank;
  }
  for (Candidate& c : candidates) c.rank = std::abs(c.rank - entropy);
  keep_leading(candidates, mass * total);
}

// Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020.
void keep_nucleus(std::vector<Candidate>& candidates, double target) {
  for (Candidate& c : candidates) c.rank = -c.weight;
  keep_leading(candidates, target);
}

TokenId draw_candidate(std::vector<Candidate>& candidates, double uniform) {
  if (!std::ranges::is_sorted(candidates, {}, &Candidate::id)) {
    std::ranges::sort(candidates, {}, &Candidate::id);
  }
  const double point = uniform * weight_of(candidates);
  double reached = 0;
  TokenId last = candidates.front().id;
  for (const Candidate& c : candidates) {
    if (c.weight <= 0) continue;
    reached += c.weight;
    last = c.id;
    if (reached > point) break;
  }
  return last;
}

// The same over a whole row of weights; `point` lies in [0, their sum).
TokenId draw_from(std::span<const double> weights, double point) {
  double reached = 0;
  TokenId last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    reached += weights[i];
    last = static_cast<TokenId>(i);
    if (reached > point) break;
  }
  return last;
}

}  // namespace

Result<> check_row(LogitRow::Fault fault, Position position) {
  switch (fault) {
    case LogitRow::Fault::kNone:
      return {};
    case LogitRow::Fault::kNotANumber:
      return fail(ErrorCode::kInternal, "logits", "the model yields NaN for position {}", position);
    case LogitRow::Fault::kInfinite:
      return fail(ErrorCode::kInternal, "logits", "the model yields an infinite logit for position {}",
                  position);
    case LogitRow::Fault::kAllImpossible:
      return fail(ErrorCode::kInternal, "logits", "no token is possible at position {}", position);
  }
  UNREACHABLE();
}

Result<> validate_sampling(const SamplingParams& params, int vocab_size) {
  constexpr int kIntMax = std::numeric_limits<int>::max();
  constexpr auto kExcluded = FloatRange::Low::kExcluded;
  TRY(check_int(params.max_tokens, {"max_tokens", 0, kIntMax}));
  TRY(check_int(params.min_tokens, {"min_tokens", 0, kIntMax}));
  if (params.min_tokens > params.max_tokens) {
    return fail(ErrorCode::kInvalidArgument, "min_tokens", "min_tokens is {}, limit is max_tokens = {}",
                params.min_tokens, params.max_tokens);
  }
  TRY(check_float(params.temperature, {"temperature", 0, 100}));
  TRY(check_int(params.top_k, {"top_k", 0, kIntMax}));
  TRY(check_float(params.top_p, {"top_p", 0, 1, kExcluded}));
  TRY(check_float(params.min_p, {"min_p", 0, 1}));
  TRY(check_float(params.typical_p, {"typical_p", 0, 1, kExcluded}));
  TRY(check_float(params.repetition_penalty, {"repetition_penalty", 0, 10, kExcluded}));
  TRY(check_float(params.presence_penalty, {"presence_penalty", -2, 2}));
  TRY(check_float(params.frequency_penalty, {"frequency_penalty", -2, 2}));
  if (params.logprobs) TRY(check_int(*params.logprobs, {"logprobs", 0, kLogprobsMax}));
  TRY(check_token_lists(params, vocab_size));
  return check_stops(params.stop);
}

Sampler::Sampler(const SamplingParams& params, const SamplerStart& start)
    : params_(params), seed_(start.seed), ends_(params.stop_token_ids) {
  if (!params.ignore_eos) ends_.insert(ends_.end(), start.end_tokens.begin(), start.end_tokens.end());
  std::ranges::sort(ends_);
  ends_.erase(std::ranges::unique(ends_).begin(), ends_.end());
  for (const auto& [id, bias] : params.logit_bias) adjustments_.push_back({.id = id, .bias = bias});
  if (params.repetition_penalty != 1.0f) {
    for (TokenId id : start.prompt) adjustments_.push_back({.id = id, .in_prompt = true});
  }
  std::ranges::sort(adjustments_, {}, &Adjustment::id);
  size_t kept = 0;
  for (size_t i = 0; i < adjustments_.size(); ++i) {
    if (kept > 0 && adjustments_[kept - 1].id == adjustments_[i].id) {
      adjustments_[kept - 1].bias += adjustments_[i].bias;
      adjustments_[kept - 1].in_prompt |= adjustments_[i].in_prompt;
    } else {
      adjustments_[kept++] = adjustments_[i];
    }
  }
  adjustments_.resize(kept);
}

Sampler::Adjustment& Sampler::adjustment(TokenId id) {
  auto at = std::ranges::lower_bound(adjustments_, id, {}, &Adjustment::id);
  if (at == adjustments_.end() || at->id != id) at = adjustments_.insert(at, Adjustment{.id = id});
  return *at;
}

void Sampler::accept(TokenId id) {
  ++output_tokens_;
  if (params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f ||
      params_.frequency_penalty != 0.0f) {
    ++adjustment(id).output_count;
  }
}

bool Sampler::is_end(TokenId id) const {
  return std::ranges::binary_search(ends_, id);
}

bool Sampler::adjusts() const {
  return !adjustments_.empty() || (output_tokens_ < params_.min_tokens && !ends_.empty());
}

void Sampler::adjust(std::span<float> logits) const {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (const Adjustment& a : adjustments_) {
    float& logit = logits[static_cast<size_t>(a.id)];
    if (logit == kImpossible) continue;
    double x = static_cast<double>(logit) + static_cast<double>(a.bias);
    if (a.in_prompt || a.output_count > 0) {
      const double penalty = params_.repetition_penalty;
      x = x > 0 ? x / penalty : x * penalty;
    }
    if (a.output_count > 0) {
      x -= static_cast<double>(params_.presence_penalty);
      x -= static_cast<double>(params_.frequency_penalty) * a.output_count;
    }
    logit = static_cast<float>(std::clamp(x, -kMost, kMost));
  }
  if (output_tokens_ < params_.min_tokens) {
    for (TokenId id : ends_) logits[static_cast<size_t>(id)] = kImpossible;
  }
}

Result<LogitRow*> Sampler::adjusted_row(std::span<const float> logits, Position position,
                                        SamplerScratch& scratch) const {
  TRY(check_row(scratch.raw.scan(logits), position));
  if (!adjusts()) return &scratch.raw;
  scratch.logits.assign(logits.begin(), logits.end());
  adjust(scratch.logits);
  TRY(check_row(scratch.adjusted.scan(scratch.logits), position));
  return &scratch.adjusted;
}

Result<TokenChoice> Sampler::sample(std::span<const float> logits, Position position,
                                    SamplerScratch& scratch) const {
  const LogitRow* row = TRY(adjusted_row(logits, position, scratch));
  TokenChoice token;
  if (params_.temperature == 0.0f || params_.top_k == 1) {
    token.id = row->argmax();
  } else {
    token.id = draw(scratch, uniform_at(seed_, static_cast<uint64_t>(position)));
  }
  if (params_.logprobs) {
    const double logsumexp = scratch.raw.logsumexp();
    token.logprob = TokenLogprob{token.id, static_cast<float>(scratch.raw.logit(token.id) - logsumexp)};
    token.top = top_logprobs(scratch.raw, logsumexp, *params_.logprobs);
  }
  return token;
}

Result<std::vector<RankedToken>> Sampler::rank(std::span<const float> logits, RankWanted wanted,
                                               SamplerScratch& scratch) const {
  LogitRow* row = TRY(adjusted_row(logits, wanted.position, scratch));
  const double logsumexp = row->logsumexp();
  const double raw_logsumexp = row == &scratch.raw ? logsumexp : scratch.raw.logsumexp();
  std::vector<RankedToken> ranked;
  for (TokenId id : row->select_top(wanted.count)) {
    ranked.push_back({.id = id,
                      .logprob = static_cast<double>(row->logit(id)) - logsumexp,
                      .raw_logprob = static_cast<float>(scratch.raw.logit(id) - raw_logsumexp)});
  }
  return ranked;
}

TokenId Sampler::draw(SamplerScratch& scratch, double uniform) const {
  LogitRow& row = adjusts() ? scratch.adjusted : scratch.raw;
  const ExpTerms terms{.shift = row.max(), .scale = 1.0 / static_cast<double>(params_.temperature)};
  double total = 0;
  scratch.candidates.clear();
  if (params_.top_k > 0 && params_.top_k < row.size()) {
    for (TokenId id : row.select_top(params_.top_k)) {
      double x = (static_cast<double>(row.logit(id)) - static_cast<double>(terms.shift)) * terms.scale;
      scratch.candidates.push_back({.weight = exp_nonpositive(x), .id = id});
    }
    total = weight_of(scratch.candidates);
  } else {
    scratch.weights.resize(static_cast<size_t>(row.size()));
    total = sum_exp(row.logits(), terms, scratch.weights);
    if (params_.typical_p >= 1 && params_.top_p >= 1 && params_.min_p <= 0) {
      return draw_from(scratch.weights, uniform * total);
    }
    gather_candidates(scratch, total);
  }
  filter_candidates(scratch.candidates, total);
  return draw_candidate(scratch.candidates, uniform);
}

// The candidates of a whole row that weighs `total`. Where the first filter is one that only keeps likely
// tokens, those that it cannot keep are left out at once: the tokens below (1 - top_p) / n of the total weigh
// less than 1 - top_p together, so the nucleus lies above.
void Sampler::gather_candidates(SamplerScratch& scratch, double total) const {
  double least = 0;
  if (params_.typical_p >= 1 && params_.top_p < 1) {
    constexpr double kRoundingSlack = 1 - 1e-6;
    const double outside = (1.0 - static_cast<double>(params_.top_p)) * total;
    least = outside / static_cast<double>(scratch.weights.size()) * kRoundingSlack;
  } else if (params_.typical_p >= 1) {
    least = static_cast<double>(params_.min_p);  // the best token's weight is 1
  }
  for (size_t i = 0; i < scratch.weights.size(); ++i) {
    if (scratch.weights[i] > 0 && scratch.weights[i] >= least) {
      scratch.candidates.push_back({.weight = scratch.weights[i], .id = static_cast<TokenId>(i)});
    }
  }
}

// `total`: what the first filter takes for the whole.
void Sampler::filter_candidates(std::vector<Candidate>& candidates, double total) const {
  if (params_.typical_p < 1) {
    keep_typical(candidates, static_cast<double>(params_.typical_p));
    total = weight_of(candidates);
  }
  if (params_.top_p < 1) keep_nucleus(candidates, static_cast<double>(params_.top_p) * total);
  if (params_.min_p > 0) {
    double most = 0;
    for (const Candidate& c : candidates) most = std::max(most, c.weight);
    const double least = most * static_cast<double>(params_.min_p);
    std::erase_if(candidates, [least](const Candidate& c) { return c.weight < least; });
  }
}

std::vector<TokenLogprob> top_logprobs(LogitRow& row, double logsumexp, int count) {
  std::vector<TokenLogprob> top;
  auto ids = row.select_top(count);
  top.reserve(ids.size());
  for (TokenId id : ids) top.push_back({id, static_cast<float>(row.logit(id) - logsumexp)});
  return top;
}

}  // namespace quire
