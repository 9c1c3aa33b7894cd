#include "engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "base/check.h"

namespace quire {

BeamSearch::BeamSearch(const BeamSearchParams& params, int max_tokens)
    : params_(params), max_tokens_(max_tokens), groups_(static_cast<size_t>(params.groups)) {
  CHECK(params.width >= 1 && params.groups >= 1 && params.width % params.groups == 0 && max_tokens >= 1);
  // All groups start from the prompt, which is beam 0.
  for (Group& group : groups_) group.beams.push_back({});
}

int BeamSearch::beam_count() const {
  if (length_ == 0) return 1;
  int count = 0;
  for (const Group& group : groups_) count += static_cast<int>(group.beams.size());
  return count;
}

double BeamSearch::scored(double score, int length) const {
  return score / std::pow(length, static_cast<double>(params_.length_penalty));
}

std::vector<BeamMove> BeamSearch::advance(std::span<const BeamCandidates> candidates, BeamEnds ends) {
  CHECK(static_cast<int>(candidates.size()) == beam_count() && !candidates.empty());
  ++length_;
  Step step{.candidates = candidates};
  for (Group& group : groups_) {
    const int first = static_cast<int>(step.moves.size());
    if (!group.beams.empty()) advance_group(group, step, ends);
    group.first_beam = first;
  }
  return step.moves;
}

std::vector<BeamSearch::Continuation> BeamSearch::ranked(const Group& group, const Step& step) const {
  std::vector<Continuation> all;
  for (size_t b = 0; b < group.beams.size(); ++b) {
    for (const RankedToken& token : step.candidates[static_cast<size_t>(group.first_beam) + b].ranked) {
      const auto times = static_cast<double>(std::ranges::count(step.taken, token.id));
      const double penalty = static_cast<double>(params_.diversity_penalty) * times;
      all.push_back({.beam = static_cast<int>(b),
                     .score = group.beams[b].score + token.logprob - penalty,
                     .token = &token});
    }
  }
  std::ranges::sort(all, {}, [](const Continuation& c) { return std::tuple(-c.score, c.beam, c.token->id); });
  return all;
}

void BeamSearch::advance_group(Group& group, Step& step, BeamEnds ends) {
  const auto width = static_cast<size_t>(group_width());
  const std::vector<Continuation> all = ranked(group, step);
  const bool at_length = length_ == max_tokens_;
  std::vector<Beam> next;
  std::vector<Finished> ended, ended_below;
  std::vector<TokenId> taken;
  std::vector<BeamMove> moves;
  for (size_t rank = 0; rank < all.size() && (rank < width || next.size() < width); ++rank) {
    const Continuation& c = all[rank];
    const int beam = group.first_beam + c.beam;
    const bool ends_here = ends(beam, c.token->id);
    if (!ends_here && !at_length && next.size() == width) continue;
    const int node = add_node(group, c, step.candidates[static_cast<size_t>(beam)]);
    if (!ends_here) taken.push_back(c.token->id);
    if (ends_here || at_length) {
      (rank < width ? ended : ended_below)
          .push_back({.node = node,
                      .score = scored(c.score, length_),
                      .reason = ends_here ? FinishReason::kStop : FinishReason::kLength});
      if (at_length && ended.size() == width) break;
    } else {
      next.push_back({.node = node, .score = c.score});
      moves.push_back({.parent = beam, .token = c.token->id});
    }
  }
  // Nothing goes on: then those count that ended outside the best, too.
  if (next.empty()) std::ranges::move(ended_below, std::back_inserter(ended));
  keep_best(group, std::move(ended));
  group.beams = std::move(next);
  const bool full_enough = is_full(group) && params_.early_stopping == EarlyStopping::kWhenFull;
  if (!group.beams.empty() && (full_enough || !may_improve(group))) group.beams.clear();
  if (!group.beams.empty()) std::ranges::move(moves, std::back_inserter(step.moves));
  if (!group.beams.empty() || at_length) std::ranges::move(taken, std::back_inserter(step.taken));
}

int BeamSearch::add_node(const Group& group, const Continuation& c, const BeamCandidates& candidates) {
  nodes_.push_back({.token = {.id = c.token->id, .logprob = c.token->raw_logprob, .top = candidates.top},
                    .parent = group.beams[static_cast<size_t>(c.beam)].node});
  return static_cast<int>(nodes_.size()) - 1;
}

void BeamSearch::keep_best(Group& group, std::vector<Finished> ended) const {
  std::ranges::move(ended, std::back_inserter(group.finished));
  std::ranges::stable_sort(group.finished, std::ranges::greater(), &Finished::score);
  if (group.finished.size() > static_cast<size_t>(group_width()))
    group.finished.resize(static_cast<size_t>(group_width()));
}

bool BeamSearch::may_improve(const Group& group) const {
  if (!is_full(group)) return true;
  // Scores only fall, so that a positive length penalty makes the longest length the best one.
  const bool at_the_end = params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
  const double best = scored(group.beams.front().score, at_the_end ? max_tokens_ : length_);
  return best > group.finished.back().score;
}

std::vector<BeamResult> BeamSearch::results() const {
  std::vector<BeamResult> results;
  const auto width = static_cast<size_t>(group_width());
  for (size_t place = 0; place < width; ++place) {
    const auto first = static_cast<std::ptrdiff_t>(results.size());
    for (const Group& group : groups_)
      if (place < group.finished.size()) results.push_back(result(group.finished[place]));
    std::ranges::stable_sort(results.begin() + first, results.end(), std::ranges::greater(),
                             &BeamResult::score);
  }
  return results;
}

BeamResult BeamSearch::result(const Finished& finished) const {
  BeamResult result{.tokens = {}, .score = finished.score, .finish = finished.reason};
  for (int node = finished.node; node != kNoNode; node = nodes_[static_cast<size_t>(node)].parent) {
    result.tokens.push_back(nodes_[static_cast<size_t>(node)].token);
    result.logprob_sum += static_cast<double>(result.tokens.back().logprob);
  }
  std::ranges::reverse(result.tokens);
  return result;
}

}  // namespace quire
