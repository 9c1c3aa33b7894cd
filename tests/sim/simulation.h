// The real scheduler and KV bookkeeping over ToyModel, with simulated clients and a manual clock.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sched/scheduler.h"
#include "sched/toy_model.h"
#include "tests/sim/checkers/checker.h"
#include "tests/sim/client.h"
#include "tests/sim/world.h"

namespace quire::sim {

struct Totals {
  int64_t requests = 0, refused = 0, cancelled = 0, steps = 0, rows = 0, abandoned = 0;
  int64_t preemptions = 0, hits = 0, copies = 0, forks = 0, pins = 0;
  std::array<int64_t, 4> ended_as{};  // [SequenceState]: cancelled in it
  Totals& operator+=(const Totals& other);
};

// One world and one seed decide everything. Invariants: (1) every event reaches every checker; (2) the run
// stops at the first violation.
class Simulation {
 public:
  Simulation(const World& world, uint64_t seed);
  ~Simulation();

  // `requests` arrivals, then silence until all have ended, at most `steps_max` steps; the first violation if
  // there is one.
  [[nodiscard]] std::optional<std::string> run(int requests, int64_t steps_max);
  [[nodiscard]] const Totals& totals() const { return totals_; }

 private:
  struct LiveRequest {
    ClientRequest client;
    int64_t step = 0;
    std::vector<SeqId> sequences;
    bool forked = false;
    int read_tokens = 0;
  };
  // What a sequence does after a step.
  struct Turn {
    SeqId seq;
    TokenId model_token = 0;
  };

  template <class Event>
  void tell(const Event& event) {
    for (const auto& checker : checkers_) event(*checker);
  }
  [[nodiscard]] std::optional<std::string> first_violation() const;
  void arrive();
  void cancel_some();
  void read_slowly();
  void pin_some();
  void cancel(SeqId request);
  void step();
  void compute(const ScheduledStep& step, std::vector<Turn>& turns);
  void take_answers(const PlannedSequence& planned, std::span<const TokenId> next);
  void commit(const ScheduledStep& step, const std::vector<Turn>& turns);
  void go_on(LiveRequest& request, const std::vector<Turn>& turns);
  void fork_samples(LiveRequest& request, const Turn& turn);
  void branch_beams(LiveRequest& request, const std::vector<Turn>& turns);
  void fork(LiveRequest& request, const Turn& parent, int turn);
  [[nodiscard]] bool has_ended(const LiveSequence& sequence, const ClientRequest& client) const;
  void end(SeqId seq);
  void end_request(SeqId request);
  void append(LiveSequence& sequence, TokenId model_token, int turn);

  const World world_;
  const SchedulerOptions options_;
  Scheduler scheduler_;
  ToyModel model_;
  Clients clients_;
  std::vector<std::unique_ptr<Checker>> checkers_;
  std::map<SeqId, LiveRequest> requests_;  // by their first sequence
  std::map<SeqId, LiveSequence> sequences_;
  std::vector<PinId> pins_;
  double now_ms_ = 0;
  uint64_t ids_ = 0;
  Totals totals_;
};

}  // namespace quire::sim
