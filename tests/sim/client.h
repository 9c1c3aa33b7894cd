// Who sends requests, and what becomes of them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "quire/engine.h"
#include "tests/sim/toy_model.h"
#include "tests/sim/world.h"

namespace quire::sim {

// Where a request can be when its client gives it up.
enum class Stage : uint8_t {
  kInbox,   // the engine has not looked yet
  kQueued,  // holds no block
  kPrefilling,
  kDecoding,
  kForked,  // has several sequences
  kPreempted,
  kFinished,  // not all of it has been read
};
inline constexpr size_t kStages = 7;

struct Client {
  Request request;
  // Reads so many events at most, every so many beats; all that there is once the engine is through.
  int read_every = 1;
  int read_most = std::numeric_limits<int>::max();
  // Gives the request up at whichever comes first: at a stage, after so many beats or tokens (-1: never).
  Stage leave_at = Stage::kInbox;
  enum class Leaves : uint8_t { kNever, kAtStage } leaves = Leaves::kNever;
  int leave_after_beats = -1;
  int leave_after_tokens = -1;
  enum class Exit : uint8_t { kCancels, kDropsStream } exit = Exit::kCancels;
  int64_t pin_ms = 0;  // > 0: wants the prompt pinned for so long when it is computed
};

// Draws clients: prompts in families with common beginnings, next turns of old conversations, equal prompts
// at once, samples and beams, impossible wishes, readers who fall behind, leave and cancel.
class Clients {
 public:
  Clients(const World& world, uint64_t seed) : world_(world), rng_(seed) {}

  [[nodiscard]] Client draw();
  // A text that later requests may continue.
  void remember(Tokens tokens);
  // The beginning of a text that was remembered, perhaps of none.
  [[nodiscard]] Tokens draw_prefix();
  [[nodiscard]] std::string draw_salt() { return below(4) == 0 ? salt() : ""; }
  // The salt in use beside the empty one; from now on it is another one.
  [[nodiscard]] std::string leave_salt();
  [[nodiscard]] bool uses(const std::string& salt_used) const {
    return salt_used.empty() || salt_used == salt();
  }

  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng_); }

 private:
  Tokens draw_prompt();
  void draw_sampling(SamplingParams& sampling);
  void draw_choices(Request& request);
  void draw_patience(Client& client);
  void make_impossible(Request& request);
  [[nodiscard]] std::string salt() const { return "salt " + std::to_string(salts_left_); }

  const World world_;
  std::mt19937_64 rng_;
  std::vector<Tokens> history_;
  Tokens last_prompt_;
  int salts_left_ = 0;
};

}  // namespace quire::sim
