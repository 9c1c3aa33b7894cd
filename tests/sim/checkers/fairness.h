#pragma once

#include <map>
#include <set>
#include <string>

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// Nobody is passed over: a request that waits is overtaken by one whose place is behind its own by more than
// the head start of a cached prefix only while another computes its beginning, and in at most
// kLeaderWaitsMax steps; every sequence that decodes has its row in every step unless it is preempted, and
// beams have theirs together.
class Fairness : public Checker {
 public:
  using Checker::Checker;
  void on_arrival(const Arrived& arrived) override;
  void on_plan(const Planned& planned) override;
  void on_abandon() override { before_.clear(); }
  void on_beat(std::span<const LivingSequence> living) override;
  void on_gone(SeqId request) override;

 private:
  struct Waiting {
    int64_t virtual_arrival = 0;
    int overtaken = 0;
  };
  struct Known {
    GroupPace pace = GroupPace::kFree;
    std::string salt;
  };
  struct Before {
    SeqId request;
    SequenceFigures figures;
  };
  [[nodiscard]] bool has_leader(SeqId request, std::span<const LivingSequence> living) const;
  void check_queue(std::span<const LivingSequence> living);
  void check_decodes(const std::set<SeqId>& planned);

  std::map<SeqId, Waiting> waiting_;  // never admitted yet
  std::map<SeqId, Known> requests_;
  std::map<SeqId, Before> before_;  // after the last beat
  int64_t steps_ = 0;
};

}  // namespace quire::sim
