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

// Owned by Scheduler. Invariants: (1) a sequence is in exactly one of `running` (by arrival) and `waiting`
// (by place); (2) `copies` is empty between steps. Members are destroyed in reverse order: sequences before
// the tree, the tree before the pools.
struct Scheduler::Impl {
  struct PlaceOrder {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->place < b->place; }
  };
  // The pin that keeps a copy's source while the engine copies.
  struct PendingCopy {
    const Sequence* sequence = nullptr;
    BlockCopy copy;
    SealedBlock source;
  };
  // How far admission looks ahead: to the growth that is expected soon, or to the last token allowed.
  enum class Horizon : uint8_t { kSoon, kEnd };

  explicit Impl(SchedulerOptions given);

  Sequence& get(SeqId seq);
  const Sequence& get(SeqId seq) const;
  [[nodiscard]] int group_count() const { return static_cast<int>(pools.size()); }
  [[nodiscard]] bool is_oldest_running(const Sequence& s) const { return running.front() == &s; }

  // Planning, in this order.
  void plan_decodes();
  void plan_prefills();
  ScheduledStep assemble();

  void admit_waiting(int budget);
  bool try_admit(Sequence& s);
  [[nodiscard]] AdmissionView view_of(const Sequence& s, const PrefixMatch& match, Horizon horizon) const;
  [[nodiscard]] BlockCounts peak_of(const Sequence& s, Horizon horizon) const;
  void adopt_prefix(Sequence& s, const PrefixMatch& match);
  void adopt_partial(Sequence& s, const PrefixMatch& match);
  [[nodiscard]] int rows_that_fit(const Sequence& s, int rows) const;
  bool reserve_or_preempt(Sequence& s, int rows);
  bool make_room(int group, int blocks);
  void preempt_victim(int group);
  void preempt(Sequence& s);

  void run(Sequence& s);
  void stop_running(Sequence& s);
  void give_up_blocks(Sequence& s);
  void commit_rows(Sequence& s);
  void cache_sealed(Sequence& s, int first_block);

  void audit_pins() const;
  void audit_path(const Sequence& s) const;

  const SchedulerOptions options;
  std::vector<std::unique_ptr<BlockPool>> pools;  // [group]
  std::vector<BlockPool*> pool_pointers;
  RadixTree tree;
  std::unordered_map<SeqId, std::unique_ptr<Sequence>> sequences;
  std::vector<Sequence*> running;
  std::set<Sequence*, PlaceOrder> waiting;
  std::vector<PendingCopy> copies;
  bool in_step = false;
  bool preempted_now = false;
  int64_t steps = 0;
  uint64_t arrivals = 0;
};

}  // namespace quire
