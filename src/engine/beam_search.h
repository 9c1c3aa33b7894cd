// The bookkeeping of a beam search: which beams go on with which token, and which sequences have ended.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "core/ids.h"
#include "engine/sampler.h"
#include "quire/engine.h"

namespace quire {

// What a beam may go on with, best first.
struct BeamCandidates {
  std::vector<RankedToken> ranked;
  std::vector<TokenLogprob> top;  // kept with the token that is chosen; may be empty
};

// A new beam continues the beam `parent` of the step before.
struct BeamMove {
  int parent = 0;
  TokenId token = 0;
};

struct BeamToken {
  TokenId id = 0;
  float logprob = 0;  // of the unmodified distribution
  std::vector<TokenLogprob> top{};
};

// A sequence that has ended.
struct BeamResult {
  std::vector<BeamToken> tokens;
  double score = 0;
  double logprob_sum = 0;                     // of the unmodified distribution
  FinishReason finish = FinishReason::kStop;  // kLength: it reached max_tokens
};

// Whether `token` ends the sequence of `beam`.
using BeamEnds = FunctionRef<bool(int beam, TokenId token)>;

// Beam search as the `generate` of Hugging Face's transformers does it, in groups as in Vijayakumar et al.,
// "Diverse Beam Search", 2018. Knows no model: one advance() is one token of every beam.
//
// Invariants: (1) candidates are ordered by score, ties by beam and token id; (2) one that ends its sequence
// is a result only when it is among the best width / groups of its group; (3) beams are numbered through the
// groups, in each by falling score; a group that has ended has none. Cost of a step: O(width^2 log width).
class BeamSearch {
 public:
  // max_tokens >= 1.
  BeamSearch(const BeamSearchParams& params, int max_tokens);

  // Candidates that advance() wants of a beam, when `end_tokens` tokens may end a sequence.
  [[nodiscard]] int candidates_wanted(int end_tokens) const { return 2 * params_.width + end_tokens; }
  // 1 before the first step, at most width, 0 at the end.
  [[nodiscard]] int beam_count() const;

  // `candidates`: of every beam. The new beams, in order; none when the search is over.
  std::vector<BeamMove> advance(std::span<const BeamCandidates> candidates, BeamEnds ends);

  // When it is over: the results, best first, of several groups by turns.
  [[nodiscard]] std::vector<BeamResult> results() const;

 private:
  static constexpr int kNoNode = -1;
  // One token of a sequence; those before it are reached through `parent`.
  struct Node {
    BeamToken token;
    int parent = kNoNode;
  };
  struct Beam {
    int node = kNoNode;
    double score = 0;  // not divided by its length
  };
  struct Finished {
    int node = kNoNode;
    double score = 0;
    FinishReason reason = FinishReason::kStop;
  };
  struct Group {
    int first_beam = 0;  // number of its first beam
    std::vector<Beam> beams;
    std::vector<Finished> finished;  // best first
  };
  struct Continuation {
    int beam = 0;  // within the group
    double score = 0;
    const RankedToken* token = nullptr;
  };

  // One step: what the beams may go on with, what earlier groups have taken, what comes of it.
  struct Step {
    std::span<const BeamCandidates> candidates;
    std::vector<TokenId> taken{};
    std::vector<BeamMove> moves{};
  };
  void advance_group(Group& group, Step& step, BeamEnds ends);
  [[nodiscard]] std::vector<Continuation> ranked(const Group& group, const Step& step) const;
  int add_node(const Group& group, const Continuation& c, const BeamCandidates& candidates);
  void keep_best(Group& group, std::vector<Finished> ended) const;
  [[nodiscard]] bool may_improve(const Group& group) const;
  [[nodiscard]] double scored(double score, int length) const;
  [[nodiscard]] int group_width() const { return params_.width / params_.groups; }
  [[nodiscard]] bool is_full(const Group& group) const {
    return static_cast<int>(group.finished.size()) == group_width();
  }
  [[nodiscard]] BeamResult result(const Finished& finished) const;

  const BeamSearchParams params_;
  const int max_tokens_;
  int length_ = 0;  // tokens of every beam
  std::vector<Node> nodes_;
  std::vector<Group> groups_;
};

}  // namespace quire
