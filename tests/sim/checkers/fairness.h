#pragma once

#include <map>
#include <set>

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
  void on_plan(const ScheduledStep& step) override;
  void on_abandon() override { before_.clear(); }
  void on_commit() override;
  void on_fork(const LiveSequence& parent, const LiveSequence& child) override;
  void on_end(const LiveSequence& sequence) override { sequences_.erase(sequence.seq); }
  void on_request_end(SeqId request) override { waiting_.erase(request); }

 private:
  struct Waiting {
    int64_t virtual_arrival = 0;
    int overtaken = 0;
  };
  struct Known {
    SeqId request;
    GroupPace pace = GroupPace::kFree;
    CacheScope scope;
  };
  [[nodiscard]] bool has_leader(SeqId request) const;
  void check_queue();
  void check_decodes(const std::set<SeqId>& planned);

  std::map<SeqId, Waiting> waiting_;  // never admitted yet
  std::map<SeqId, Known> sequences_;
  std::map<SeqId, SequenceFigures> before_;  // after the last commit
  int64_t steps_ = 0;
};

}  // namespace quire::sim
