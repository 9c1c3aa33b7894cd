// Who sends requests, and what becomes of them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "sched/scheduler.h"
#include "tests/sim/world.h"

namespace quire::sim {

using Tokens = std::vector<TokenId>;

inline constexpr int kVocab = 7;
inline constexpr TokenId kEos = 3;

// How a client uses its sequences.
enum class Use : uint8_t {
  kAnswer,   // one
  kSamples,  // forked once, when the prompt is computed; each goes its way
  kBeams,    // forked and dropped in every step
};

struct ClientRequest {
  SequenceRequest sequence;
  Use use = Use::kAnswer;
  int cancel_after = -1;  // steps after its arrival; -1 = never
  int read_every = 1;     // steps between two tokens that a slow reader takes
  bool leaves_when_preempted = false;
  int leave_after = -1;  // tokens that it reads before it goes away; -1 = it stays to the end
  bool ignores_eos = false;
};

// Draws requests: prompts in families with common beginnings, next turns of old conversations, bursts of
// equal prompts, impossible ones, early and late cancellations, readers who fall behind and leave.
class Clients {
 public:
  Clients(const World& world, uint64_t seed) : world_(world), rng_(seed) {}

  [[nodiscard]] ClientRequest draw(SeqId seq);
  // A text that later requests may continue.
  void remember(Tokens tokens);
  // The beginning of a text that was remembered, perhaps of none.
  [[nodiscard]] Tokens draw_prefix();
  [[nodiscard]] CacheScope draw_scope() { return {first_scope_ + static_cast<uint64_t>(below(8) == 0)}; }
  // The older of the two scopes in use; from now on the other one and a new one are.
  [[nodiscard]] CacheScope leave_scope() { return {first_scope_++}; }

  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng_); }

 private:
  Tokens draw_prompt();
  void make_impossible(SequenceRequest& request);

  const World world_;
  std::mt19937_64 rng_;
  std::vector<Tokens> history_;
  Tokens last_prompt_;
  uint64_t first_scope_ = 0;
};

}  // namespace quire::sim
