// What watches a simulation.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"
#include "engine/inbox.h"
#include "kv/kv_store.h"
#include "sched/scheduler.h"
#include "tests/sim/answer.h"
#include "tests/sim/client.h"

namespace quire::sim {

// What checkers may look at, through public functions only; it outlives them.
struct Watched {
  const SchedulerOptions& options;
  const Scheduler& scheduler;
  const EngineLoop& loop;
  const Inbox& inbox;
  int inbox_requests_max = 0;
  KvStore& kv;
};

struct Arrived {
  SeqId request;  // its first sequence
  const Request& wish;
};

struct Refused {
  const Request& wish;
  const Error& error;
};

struct Pinned {
  PinId id;
  CacheScope scope;
  Tokens tokens;
  int64_t expires_ns = 0;
};

struct Planned {
  const StepPlan& plan;
  std::span<const LivingSequence> living;
};

struct Answered {
  SeqId request;
  const Request& wish;
  const Answer& answer;
};

// Sees every event of a simulation and names what must not be. One instance a simulation.
class Checker {
 public:
  explicit Checker(const Watched& watched) : watched_(watched) {}
  virtual ~Checker() = default;

  virtual void on_arrival(const Arrived&) {}
  virtual void on_refusal(const Refused&) {}
  // The client wants no more of it: cancelled, dropped, or read to its end. The engine does not know yet.
  virtual void on_leave(SeqId /*request*/) {}
  virtual void on_time(int64_t /*now_ns*/) {}  // a beat begins
  virtual void on_plan(const Planned&) {}      // planned and copied; nothing is computed
  virtual void on_computed(const Planned&) {}  // the scheduler does not know yet
  virtual void on_abandon() {}                 // what was planned
  virtual void on_pin(const Pinned&) {}
  virtual void on_unpin(PinId) {}  // ordered
  virtual void on_scope_drop(CacheScope) {}
  virtual void on_beat(std::span<const LivingSequence>) {}  // it is over
  virtual void on_gone(SeqId /*request*/) {}                // its last sequence has ended
  virtual void on_answer(const Answered&) {}                // all that its client will read of it
  virtual void on_silence() {}                              // nothing lives

  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }

 protected:
  template <class... Args>
  void violated(fmt::format_string<Args...> text, Args&&... args) {
    violations_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  [[nodiscard]] const SchedulerOptions& options() const { return watched_.options; }
  [[nodiscard]] const Scheduler& scheduler() const { return watched_.scheduler; }

  const Watched watched_;

 private:
  std::vector<std::string> violations_;
};

}  // namespace quire::sim
