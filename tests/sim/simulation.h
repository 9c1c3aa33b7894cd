// The real engine loop, door, scheduler and KV store over ToyModel, with simulated clients and a manual
// clock.
#pragma once

#include <array>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/engine_door.h"
#include "engine/engine_loop.h"
#include "tests/sim/checkers/checker.h"
#include "tests/sim/client.h"
#include "tests/sim/toy_model.h"
#include "tests/sim/world.h"

namespace quire::sim {

// Time that passes when it is told to.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override { return now_ns_; }
  void advance_ms(double ms) { now_ns_ += static_cast<int64_t>(ms * 1e6); }

 private:
  int64_t now_ns_ = 1'000'000;
};

struct Totals {
  int64_t requests = 0, refused = 0, steps = 0, abandoned = 0, stopped = 0;
  int64_t rows = 0, tokens = 0, preemptions = 0, evictions = 0, copies = 0, hits = 0, forks = 0, pins = 0;
  int64_t errors = 0, read_late = 0;
  std::array<int64_t, kStages> left_at{};
  uint64_t digest = 0;  // of all that was read, in order

  Totals& operator+=(const Totals& other);
  friend bool operator==(const Totals&, const Totals&) = default;
};

struct RunLength {
  int64_t requests = 0;
  int64_t steps_max = 0;  // then the engine is stopped, whoever lives
};

// One world and one seed decide everything; the pool's threads do not. Clients act between beats, on the one
// thread that also beats. Invariants: (1) every event reaches every checker; (2) the run stops at the first
// violation.
class Simulation {
 public:
  // `pool` outlives it.
  Simulation(const World& world, uint64_t seed, ThreadPool& pool);
  ~Simulation();

  // So many arrivals, then silence until all have ended, then the engine stops; the first violation if there
  // is one.
  [[nodiscard]] std::optional<std::string> run(const RunLength& length);
  [[nodiscard]] const Totals& totals() const { return totals_; }

 private:
  struct LiveRequest {
    Client client;
    std::optional<TokenStream> stream{};  // until it is read to its end or dropped
    Answer answer{};
    std::vector<SeqId> sequences{};  // that live after the last beat
    int64_t arrived_beat = 0;
    Stage stage = Stage::kInbox;
    bool left = false;  // the checkers know
  };
  struct PinWish {
    PrefixPin pin;
    std::future<Result<PinId>> answer;
  };

  template <class Event>
  void tell(const Event& event) {
    for (const auto& checker : checkers_) event(*checker);
  }
  [[nodiscard]] std::optional<std::string> first_violation() const;
  void arrive();
  void leave_some();
  void leave(SeqId seq, LiveRequest& request);
  void beat();
  LogitsView forward(const StepPlan& plan, KvStore& kv);
  void look_around();
  void update_stage(SeqId seq, LiveRequest& request);
  void order_pin(PrefixPin pin);
  void pin_and_unpin_some();
  void settle_pins(int64_t ordered_ns);
  void read_some();
  void read(SeqId seq, LiveRequest& request);
  void finish_reading(SeqId seq, LiveRequest& request);
  void give_up_a_step();
  void drop_a_scope();
  void stop();
  void count();

  const World world_;
  const SchedulerOptions options_;
  Clients clients_;
  ManualClock clock_;
  const std::unique_ptr<KvStore> kv_;
  Scheduler scheduler_;
  ToyModel model_;
  const std::shared_ptr<Inbox> inbox_;
  SeqIds seq_ids_;
  CacheScopes scopes_;
  EngineDoor door_;
  EngineLoop loop_;
  std::vector<std::unique_ptr<Checker>> checkers_;
  std::map<SeqId, LiveRequest> requests_;
  std::vector<LivingSequence> living_;  // after the last beat
  std::vector<PinWish> pin_wishes_;     // ordered in this beat
  std::vector<PinId> pins_;
  int64_t beats_ = 0;
  SeqId newest_;  // sequence that was seen alive
  Totals totals_;
};

}  // namespace quire::sim
