// What watches a simulation.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sched/scheduler.h"
#include "tests/sim/client.h"

namespace quire::sim {

// A sequence as its client sees it.
struct LiveSequence {
  SeqId seq;
  SeqId request;           // the request's first sequence
  Tokens tokens;           // prompt and sampled
  std::vector<int> turns;  // [sampled token]: how far from the model's own choice the client went
  Tokens prompt_answers;   // the model's token after each prompt token, with PromptLogits::kAll
  int prompt_tokens = 0;
};

struct Arrived {
  const ClientRequest& client;
  int64_t step = 0;
};

struct Refused {
  const ClientRequest& client;
  const Error& error;
};

struct Pinned {
  PinId id;
  CacheScope scope;
  Tokens tokens;
  int64_t expires_ns = 0;
};

// Sees every event of a simulation and names what must not be. One instance a simulation. Checkers may look
// at the scheduler through its public functions only.
class Checker {
 public:
  explicit Checker(const Scheduler& scheduler, SchedulerOptions options)
      : scheduler_(scheduler), options_(std::move(options)) {}
  virtual ~Checker() = default;

  virtual void on_arrival(const Arrived&) {}
  virtual void on_refusal(const Refused&) {}
  virtual void on_pin(const Pinned&) {}
  virtual void on_unpin(PinId) {}
  virtual void on_time(int64_t /*now_ns*/) {}  // the scheduler knows it, too
  virtual void on_scope_drop(CacheScope) {}
  virtual void on_fork(const LiveSequence& /*parent*/, const LiveSequence& /*child*/) {}
  virtual void on_plan(const ScheduledStep&) {}  // before anything is computed
  virtual void on_abandon() {}
  virtual void on_computed(const ScheduledStep&) {}  // before the scheduler knows
  virtual void on_commit() {}
  virtual void on_end(const LiveSequence&) {}  // finished or cancelled; the scheduler still knows it
  virtual void on_request_end(SeqId /*request*/) {}
  virtual void on_silence() {}  // nothing is alive

  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }

 protected:
  template <class... Args>
  void violated(fmt::format_string<Args...> text, Args&&... args) {
    violations_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  const Scheduler& scheduler_;
  const SchedulerOptions options_;

 private:
  std::vector<std::string> violations_;
};

}  // namespace quire::sim
