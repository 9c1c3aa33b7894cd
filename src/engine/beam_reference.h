// For tests: beam search as plainly as it can be written, over whole sequences and the whole vocabulary, with
// the tables and the sentinel scores of transformers' `generate`.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "core/ids.h"
#include "quire/engine.h"

namespace quire {

using ReferenceTokens = std::vector<TokenId>;

struct ReferenceResult {
  ReferenceTokens tokens;
  double score = 0;
};

// The log-probabilities of every token after these generated ones, and whether a sequence has ended.
struct ReferenceModel {
  std::function<std::vector<double>(const ReferenceTokens&)> next;
  std::function<bool(const ReferenceTokens&)> has_ended;
};

class BeamReference {
 public:
  BeamReference(BeamSearchParams params, int max_tokens, ReferenceModel model)
      : params_(params), max_tokens_(max_tokens), model_(std::move(model)) {}

  // Of each group its results, best first.
  std::vector<std::vector<ReferenceResult>> run() {
    const auto width = static_cast<size_t>(params_.width / params_.groups);
    std::vector<Group> groups(static_cast<size_t>(params_.groups));
    for (Group& group : groups) {
      group.running.assign(width, {.score = kNever});
      group.running[0].score = 0;
      group.kept.assign(width, {.score = kNever});
    }
    for (int length = 1; length <= max_tokens_; ++length) {
      std::map<TokenId, int> taken;
      for (Group& group : groups)
        if (group.open) step(group, length, taken);
    }
    std::vector<std::vector<ReferenceResult>> results;
    for (Group& group : groups) {
      std::vector<ReferenceResult>& kept = results.emplace_back();
      for (Row& row : group.kept)
        if (row.score > kNever / 2) kept.push_back({row.tokens, row.score});
    }
    return results;
  }

 private:
  static constexpr double kNever = -1e9;
  struct Row {
    ReferenceTokens tokens;
    double score = 0;
  };
  struct Group {
    std::vector<Row> running, kept;
    bool open = true;
  };

  void step(Group& group, int length, std::map<TokenId, int>& taken) {
    const size_t width = group.running.size();
    std::vector<Row> all;
    for (const Row& row : group.running) {
      if (row.score < kNever / 2) continue;
      const std::vector<double> next = model_.next(row.tokens);
      for (TokenId v = 0; v < static_cast<TokenId>(next.size()); ++v) {
        const auto found = taken.find(v);
        const int times = found == taken.end() ? 0 : found->second;
        Row longer{row.tokens, row.score + next[static_cast<size_t>(v)] -
                                   static_cast<double>(params_.diversity_penalty) * times};
        longer.tokens.push_back(v);
        all.push_back(std::move(longer));
      }
    }
    const auto by_score = [](const Row& a, const Row& b) { return a.score > b.score; };
    std::ranges::stable_sort(all, by_score);
    std::vector<Row> running, merged = group.kept;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool stops = model_.has_ended(all[i].tokens) || length == max_tokens_;
      if (stops && i < width) merged.push_back({all[i].tokens, divided(all[i].score, length)});
      if (!stops && running.size() < width) running.push_back(all[i]);
    }
    std::ranges::stable_sort(merged, by_score);
    merged.resize(width);
    group.kept = std::move(merged);
    running.resize(width, {.score = kNever});
    group.running = std::move(running);
    const bool full = group.kept.back().score > kNever / 2;
    const bool far = params_.early_stopping == EarlyStopping::kNever && params_.length_penalty > 0;
    const bool improvable =
        !full || divided(group.running[0].score, far ? max_tokens_ : length) > group.kept.back().score;
    const bool enough = full && params_.early_stopping == EarlyStopping::kWhenFull;
    group.open = improvable && !enough && group.running[0].score > kNever / 2;
    for (size_t i = 0; length == max_tokens_ && i < std::min(width, all.size()); ++i)
      if (!model_.has_ended(all[i].tokens)) ++taken[all[i].tokens.back()];
    if (!group.open) return;
    for (const Row& row : group.running)
      if (row.score > kNever / 2) ++taken[row.tokens.back()];
  }

  [[nodiscard]] double divided(double score, int length) const {
    return score / std::pow(length, static_cast<double>(params_.length_penalty));
  }

  const BeamSearchParams params_;
  const int max_tokens_;
  const ReferenceModel model_;
};

}  // namespace quire
