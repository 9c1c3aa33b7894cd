// The scheduler's inside: one step's decisions over living sequences, pools and tree.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/block_pool.h"
#include "kv/radix_tree.h"
#include "sched/policy.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"

namespace quire {

// Owned by Scheduler. Invariants: (1) a group is in exactly one of `running` (by arrival) and `waiting` (by
// place); (2) `copies` is empty between steps. Members are destroyed in reverse order: sequences before
// the pins, the pins before the tree, the tree before the pools.
struct Scheduler::Impl {
  struct PlaceOrder {
    bool operator()(const SequenceGroup* a, const SequenceGroup* b) const { return a->place < b->place; }
  };
  // The pin that keeps a copy's source while the engine copies.
  struct PendingCopy {
    Sequence* sequence = nullptr;
    BlockCopy copy;
    SealedBlock source;     // of a hit that ends inside a block
    KeptBlock forked_from;  // of a fork's first write
  };
  // The distinct blocks of a group.
  struct HeldBlocks {
    int held = 0;
    int unshared = 0;   // that nobody outside holds: preemption frees them
    int as_copies = 0;  // summed over the sequences
  };
  // How far admission looks ahead: to the growth that is expected soon, or to the last token allowed.
  enum class Horizon : uint8_t { kSoon, kEnd };

  explicit Impl(SchedulerOptions given);

  [[nodiscard]] Result<> check_pools(const SequenceRequest& request) const;
  Sequence& get(SeqId seq);
  const Sequence& get(SeqId seq) const;
  [[nodiscard]] int group_count() const { return static_cast<int>(pools.size()); }

  // Planning, in this order.
  void plan_decodes();
  void plan_prefills();
  ScheduledStep assemble();

  // Admission.
  void admit_waiting(int budget);
  [[nodiscard]] std::vector<SequenceGroup*> first_to_admit() const;
  bool try_admit(SequenceGroup& group, const PrefixMatch& match);
  bool try_admit_range(SequenceGroup& group);
  void start_members();
  void start(Sequence& s, const PrefixMatch& match, int spare);
  [[nodiscard]] PrefixMatch match_of(const Sequence& s) const;
  [[nodiscard]] bool is_leader_of(const Sequence& leader, const Sequence& s, const PrefixMatch& match) const;
  [[nodiscard]] bool waits_for_leader(const Sequence& s, const PrefixMatch& match,
                                      std::span<SequenceGroup* const> leaders) const;
  // Blocks free or idle, without those that the hit would pin.
  [[nodiscard]] int blocks_left(int group, const PrefixMatch& match) const;
  [[nodiscard]] AdmissionView view_of(const SequenceGroup& group, const PrefixMatch& match,
                                      Horizon horizon) const;
  [[nodiscard]] BlockCounts peak_of(const SequenceGroup& group, Horizon horizon) const;
  [[nodiscard]] BlockCounts peak_of(GroupDemand demand) const;
  void adopt_prefix(Sequence& s, const PrefixMatch& match);
  void adopt_partial(Sequence& s, const PrefixMatch& match);
  [[nodiscard]] int sequences_running() const;

  [[nodiscard]] bool may_decode(const SequenceGroup& group) const;
  [[nodiscard]] int rows_planned() const;
  [[nodiscard]] int prefill_budget() const;
  [[nodiscard]] int rows_wanted(const Sequence& s) const;
  void append_rows(const Sequence& s, ScheduledStep& step) const;
  [[nodiscard]] HeldBlocks blocks_of(const SequenceGroup& group, int g) const;
  [[nodiscard]] int rows_that_fit(const Sequence& s, int rows) const;
  bool reserve_or_preempt(Sequence& s, int rows);
  bool make_room(int group, int blocks);
  bool evict_one(int group);
  void preempt_victim(int group);
  void preempt(SequenceGroup& group);
  void unshare_tail(Sequence& s);

  void run(SequenceGroup& group);
  void stop_running(SequenceGroup& group);
  void give_up_blocks(Sequence& s);
  void end(Sequence& s);
  void commit_rows(Sequence& s);
  void note_blocks(SequenceGroup& group) const;
  void note_admission(const SequenceGroup& group);
  void note_use();
  [[nodiscard]] KvUse use_of(int g) const;
  [[nodiscard]] int tail_slots_written(const SequenceGroup& group, int g) const;
  void cache_sealed(Sequence& s, int first_block);
  void cache_tail(Sequence& s);

  void audit_pins() const;
  void audit_path(const Sequence& s) const;

  const SchedulerOptions options;
  std::vector<std::unique_ptr<BlockPool>> pools;  // [group]
  std::vector<BlockPool*> pool_pointers;
  RadixTree tree;
  PrefixPins pins;
  std::unordered_map<SeqId, std::unique_ptr<Sequence>> sequences;
  std::map<uint64_t, SequenceGroup> groups;  // by arrival
  std::vector<SequenceGroup*> running;
  std::set<SequenceGroup*, PlaceOrder> waiting;
  std::vector<PendingCopy> copies;
  StepPace pace;
  KvAccounting accounting;
  bool in_step = false;
  bool preempted_now = false;
  int64_t steps = 0;
  uint64_t arrivals = 0;
};

}  // namespace quire
