// Which tokens run next, and in which blocks. Bookkeeping only: never a float, never a byte of K or V.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/kv_geometry.h"
#include "core/step_plan.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/radix_tree.h"
#include "sched/kv_accounting.h"
#include "sched/kv_policy.h"
#include "sched/policy.h"
#include "sched/prefix_pins.h"

namespace quire {

// Which logits of the prompt a sequence wants.
enum class PromptLogits : uint8_t {
  kLast,  // of the last prompt token only: earlier ones may come from the cache
  kAll,   // of every prompt token, each exactly once: all of them are computed
};

// How the sequences of one request advance beside one another.
enum class GroupPace : uint8_t {
  kFree,      // each as it can: samples
  kTogether,  // all decode in the same step or none does: beams
};

// What the scheduler must know of a request: its first sequence, and how many may be forked from it.
struct SequenceRequest {
  SeqId seq;                     // chosen by the caller; never used before
  std::vector<TokenId> prompt;   // at least one token
  int max_tokens = 0;            // most tokens that will be sampled; 0 computes the prompt only
  int priority = 0;              // higher goes first
  int prefill_chunk_tokens = 0;  // most prompt tokens in one step; 0 = as the budget allows
  PromptLogits prompt_logits = PromptLogits::kLast;
  CacheScope scope{};  // whose cached blocks it may share
  int sequences = 1;   // most of this request in one step: `seq` and its forks
  GroupPace pace = GroupPace::kFree;
};

// A sequence that continues another's computed tokens with a token of its own.
struct ForkRequest {
  SeqId parent;  // has computed its prompt and all known tokens but perhaps the newest
  SeqId child;   // chosen by the caller; never used before
  TokenId token = 0;
};

struct SchedulerOptions {
  KvGeometry geometry;
  std::vector<int> block_counts;  // [group]; as given to KvStore
  int context_length = 0;         // bounds prompt + max_tokens of one sequence
  int step_tokens_max = 512;      // rows of one step
  int running_sequences_max = 256;
  int itl_target_ms = 0;  // gap between a stream's tokens that prefills beside it must keep to; 0 = none
  KvPolicy kv_policy = KvPolicy::kRadix;
  int pinned_blocks_max = 0;  // of each group, for pinned prefixes; no request may count on them
};

// One block of bytes to copy (KvStore::copy_block) before the step's forward().
struct BlockCopy {
  int group = 0;
  BlockId from;
  BlockId to;
};

// What to do now: first `copies`, then forward(plan), then one token for each of `completing`.
struct ScheduledStep {
  StepPlan plan;
  std::vector<BlockCopy> copies;
  // Indices into plan.sequences of those whose last known token runs in this step. Their last logits row
  // wants a sampled token, unless the sequence ends here (max_tokens = 0).
  std::vector<int> completing;

  // Nothing to run: no sequence is alive.
  [[nodiscard]] bool empty() const { return plan.sequences.empty(); }
};

struct SampledToken {
  SeqId seq;
  TokenId token = 0;
};

enum class SequenceState : uint8_t {
  kWaiting,     // holds no block
  kPrefilling,  // holds blocks; more than one known token is still to be computed
  kDecoding,    // holds blocks; only its newest token is still to be computed
  kPreempted,   // was running, gave its blocks up, waits to be computed again
};

// Figures of one living sequence.
struct SequenceFigures {
  SequenceState state = SequenceState::kWaiting;
  int prompt_tokens = 0;
  int generated_tokens = 0;
  int computed_tokens = 0;  // whose K and V are in its blocks
  int cached_tokens = 0;    // prompt tokens that the cache spared at its first admission
  int preemptions = 0;      // of its request
  int blocks_used = 0;      // held now, over all groups
};

// A sequence that has not ended, and the first one of its request, which may have.
struct LivingSequence {
  SeqId seq;
  SeqId request;
};

// Figures of one living request.
struct RequestFigures {
  int sequences = 0;
  int preemptions = 0;
  int blocks_used = 0;       // held now, over all groups; a shared block counts once
  int blocks_as_copies = 0;  // what they would be if no sequence shared with another
  int blocks_used_max = 0;   // the same two, at the step where it held most
  int blocks_as_copies_max = 0;
};

// Decides each step; owns the block pools, the prefix tree and every sequence's block table.
//
// Owned by the engine; the engine thread only (check_admissible: any thread). One step is
//   plan_step → copies, forward, sampling → commit_step → fork() and finish() for those that branch or end.
// add(), fork() and finish() come between steps, never between plan_step and commit_step.
//
// The sequences of one request share one life: they are admitted and preempted together, and whatever they
// have in common is in the same blocks, the block that they part in up to the first write behind the fork.
//
// Invariants: (1) rows of a step <= step_tokens_max, decodes first; (2) a sequence that passed
// check_admissible ends after a bounded number of steps, however small the pools: whoever holds blocks is
// served before whoever holds none, and the oldest running sequence is never preempted; (3) every sequence of
// a step holds all blocks that its rows write or see, and writes none that another holds; (4) full blocks are
// in the prefix tree, prompt and generated tokens alike, and an equal older block replaces a newer one; (5)
// at least one token of a sequence is computed, however much of it is cached; (6) without living sequences no
// block is open or pinned, save those of pinned prefixes.
class Scheduler {
 public:
  // Whether a scheduler can be made of them. Errors: kInvalidArgument with the option's name, its value and
  // its limits.
  [[nodiscard]] static Result<> check_options(const SchedulerOptions& options);

  // CHECKs check_options().
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // The door: whether the sequence fits the context and the *total* pools less pinned_blocks_max,
  // alone. Errors: kInvalidArgument
  // ("prompt_token_ids" empty, "max_tokens" or "prefill_chunk_tokens" negative, "n" or "priority" out of its
  // range, "n" above 1 under KvPolicy::kContiguous), kResourceExhausted ("prompt_token_ids" when the prompt
  // alone is too long, "n" when fewer sequences would fit, else "max_tokens"; with the numbers). Reads
  // nothing that ever changes: any thread may call it.
  [[nodiscard]] Result<> check_admissible(const SequenceRequest& request) const;

  // Queues a sequence that passed check_admissible (CHECKed).
  void add(SequenceRequest request);
  // Adds a sequence to the parent's request; costs no block before it writes. By the next plan_step the
  // request has at most `sequences` living ones.
  void fork(const ForkRequest& request);
  // Ends a sequence in any state, finished or cancelled: its sealed blocks stay cached, the rest is free.
  void finish(SeqId seq);
  // Ends all sequences of the request that `seq` belongs to.
  void finish_request(SeqId seq);

  // The next step; empty when nothing lives. Its spans hold until commit_step or abandon_step.
  [[nodiscard]] ScheduledStep plan_step();
  // The planned rows were computed. `sampled`: a token for each completing sequence that goes on; one without
  // a token, and one that has sampled max_tokens, must be finish()ed before the next plan_step.
  void commit_step(std::span<const SampledToken> sampled);
  // The planned rows were not computed: everything is as if they had not been planned, save that preempted
  // sequences stay so.
  void abandon_step();
  // Keeps a cached prefix, and what a hit at its end needs, until it is unpinned or its time is over; see
  // PrefixPins for the errors. Between steps.
  [[nodiscard]] Result<PinId> pin_prefix(const PinRequest& request);
  [[nodiscard]] Result<> unpin_prefix(PinId pin);
  // Lets the pins go whose time is over. Pins yield to nobody before, so the door leaves them out of account.
  void expire_pins(int64_t now_ns);
  // Forgets what is cached for the scope, whose id is not used again; its living sequences go on.
  void drop_scope(CacheScope scope);

  // How long a committed step took, for the step budget. Steps may go unreported.
  void note_step_time(const StepTime& time);

  [[nodiscard]] bool contains(SeqId seq) const;
  // By the arrival of their requests.
  [[nodiscard]] std::vector<LivingSequence> living() const;
  [[nodiscard]] SequenceFigures figures(SeqId seq) const;
  // Of the request that `seq` belongs to.
  [[nodiscard]] RequestFigures request_figures(SeqId seq) const;
  // O(sequences); between steps.
  [[nodiscard]] KvAccounting kv_accounting() const;
  // Prompt and sampled tokens.
  [[nodiscard]] std::span<const TokenId> tokens(SeqId seq) const;
  [[nodiscard]] int waiting_count() const;  // sequences; preempted ones included
  [[nodiscard]] int running_count() const;
  [[nodiscard]] const BlockPool& pool(int group) const;
  [[nodiscard]] const RadixTree& tree() const;
  [[nodiscard]] const PrefixPins& pins() const;

  // CHECKs pools, tree and tables against one another; O(everything).
  void audit() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
