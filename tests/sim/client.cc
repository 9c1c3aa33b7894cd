#include "tests/sim/client.h"

#include <limits>
#include <utility>

namespace quire::sim {
namespace {

constexpr size_t kHistoryMax = 64;

}  // namespace

Tokens Clients::draw_prompt() {
  if (!last_prompt_.empty() && below(5) == 0) return last_prompt_;
  if (!history_.empty() && below(3) == 0) {
    Tokens prompt = history_[static_cast<size_t>(below(static_cast<int>(history_.size())))];
    for (int more = 1 + below(6); more > 0; --more) prompt.push_back(below(kVocab));
    return prompt;
  }
  Tokens prompt(static_cast<size_t>(1 + below(40)), below(2));
  for (TokenId& token : prompt)
    if (below(12) == 0) token = below(kVocab);
  return prompt;
}

ClientRequest Clients::draw(SeqId seq) {
  ClientRequest drawn;
  SequenceRequest& sequence = drawn.sequence;
  sequence.seq = seq;
  sequence.prompt = last_prompt_ = draw_prompt();
  sequence.max_tokens = below(3) == 0 ? below(5) : below(45);
  sequence.priority = below(world_.priorities);
  sequence.prefill_chunk_tokens = below(3) == 0 ? 1 + below(9) : 0;
  sequence.prompt_logits = below(6) == 0 ? PromptLogits::kAll : PromptLogits::kLast;
  sequence.scope = draw_scope();
  const int use = below(10);
  if (use >= 7) {
    drawn.use = use == 9 ? Use::kBeams : Use::kSamples;
    sequence.sequences = 1 + below(4);
    sequence.pace = use == 9 ? GroupPace::kTogether : GroupPace::kFree;
    sequence.max_tokens = below(16);
  }
  drawn.ignores_eos = below(2) == 0;
  if (below(8) == 0) drawn.cancel_after = below(3) == 0 ? 0 : below(40);
  if (below(10) == 0) {
    drawn.read_every = 1 + below(6);
    drawn.leave_after = below(8);
  }
  drawn.leaves_when_preempted = below(8) == 0;
  if (below(40) == 0) make_impossible(sequence);
  return drawn;
}

void Clients::make_impossible(SequenceRequest& request) {
  constexpr int kAbsurd = std::numeric_limits<int>::max();
  switch (below(7)) {
    case 0:
      request.prompt.clear();
      break;
    case 1:
      request.prompt.resize(4096, 1);
      break;
    case 2:
      request.max_tokens = below(2) == 0 ? -1 : kAbsurd;
      break;
    case 3:
      request.sequences = below(2) == 0 ? 0 : kAbsurd;
      break;
    case 4:
      request.priority = below(2) == 0 ? -kAbsurd : kAbsurd;
      break;
    case 5:
      request.prefill_chunk_tokens = -kAbsurd;
      break;
    default:
      request.sequences = 1000;
      break;
  }
}

Tokens Clients::draw_prefix() {
  if (history_.empty()) return {};
  Tokens prefix = history_[static_cast<size_t>(below(static_cast<int>(history_.size())))];
  prefix.resize(static_cast<size_t>(below(static_cast<int>(prefix.size()) + 1)));
  return prefix;
}

void Clients::remember(Tokens tokens) {
  if (history_.size() < kHistoryMax) {
    history_.push_back(std::move(tokens));
  } else {
    history_[static_cast<size_t>(below(static_cast<int>(kHistoryMax)))] = std::move(tokens);
  }
}

}  // namespace quire::sim
