#include "sched/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "sched/scheduler_state.h"

namespace quire {
namespace {

std::vector<std::unique_ptr<BlockPool>> make_pools(const SchedulerOptions& options) {
  std::vector<std::unique_ptr<BlockPool>> pools;
  for (int count : options.block_counts) pools.push_back(std::make_unique<BlockPool>(count));
  return pools;
}

std::vector<BlockPool*> pointers_to(const std::vector<std::unique_ptr<BlockPool>>& pools) {
  std::vector<BlockPool*> pointers;
  for (const auto& pool : pools) pointers.push_back(pool.get());
  return pointers;
}

SchedulerOptions checked(SchedulerOptions options) {
  CHECK(Scheduler::check_options(options));
  // Every running sequence may decode in every step.
  options.running_sequences_max = std::min(options.running_sequences_max, options.step_tokens_max);
  return options;
}

}  // namespace

Scheduler::Impl::Impl(SchedulerOptions given)
    : options(checked(std::move(given))),
      pools(make_pools(options)),
      pool_pointers(pointers_to(pools)),
      tree(options.geometry, pool_pointers),
      pins({.geometry = &options.geometry,
            .pools = pool_pointers,
            .tree = &tree,
            .blocks_max = options.pinned_blocks_max}) {
  accounting.group_count = group_count();
}

Sequence& Scheduler::Impl::get(SeqId seq) {
  const auto found = sequences.find(seq);
  CHECK(found != sequences.end());
  return *found->second;
}

const Sequence& Scheduler::Impl::get(SeqId seq) const {
  return const_cast<Impl*>(this)->get(seq);
}

void Scheduler::Impl::run(SequenceGroup& group) {
  waiting.erase(&group);
  const auto by_arrival = [](const SequenceGroup* a, const SequenceGroup* b) {
    return a->place.arrival < b->place.arrival;
  };
  running.insert(std::upper_bound(running.begin(), running.end(), &group, by_arrival), &group);
  group.running = true;
  group.admitted_now = true;
}

void Scheduler::Impl::stop_running(SequenceGroup& group) {
  for (Sequence* s : group.members) give_up_blocks(*s);
  std::erase(running, &group);
  group.running = false;
  group.admitted_now = false;
  waiting.insert(&group);
}

void Scheduler::Impl::give_up_blocks(Sequence& s) {
  // Sources of copies before their parents, which the table pins.
  std::erase_if(copies, [&](const PendingCopy& c) { return c.sequence == &s; });
  tree.release(std::exchange(s.tip, kNoPrefixNode));
  s.table.release();
  s.started = s.started_now = false;
  s.rows = 0;
}

// The block that an ended sequence has written in part: the same prompt again, or the next turn, continues in
// a copy of it. Beams that are dropped on the way leave nothing.
void Scheduler::Impl::cache_tail(Sequence& s) {
  const int block_tokens = options.geometry.block_tokens;
  const bool dropped_beam = s.group->pace == GroupPace::kTogether && s.group->members.size() > 1;
  if (options.kv_policy != KvPolicy::kRadix || !s.started || dropped_beam) return;
  const std::span<const TokenId> computed = std::span(s.tokens).first(static_cast<size_t>(s.computed()));
  const PrefixMatch match = tree.match(s.request.scope, computed);
  const int whole = static_cast<int>(match.path.size()) * block_tokens;
  if (whole + match.partial_tokens == s.computed()) return;
  std::vector<TokenId> tokens(computed.begin() + s.table.sealed_count() * block_tokens, computed.end());
  tokens.resize(static_cast<size_t>(block_tokens), kUnwrittenToken);
  SealedBlocks tail = s.table.seal_tail();
  if (!tail.front()) return;
  BlockIds own;
  for (size_t g = 0; g < pools.size(); ++g) own[g] = tail[g].id();
  const PrefixNodeId node = tree.insert({.scope = s.request.scope,
                                         .parent = s.tip,
                                         .tokens = tokens,
                                         .blocks = std::span(own).first(pools.size())});
  tree.hold(node);
  tail = {};
  tree.release(node);
}

void Scheduler::Impl::end(Sequence& s) {
  cache_tail(s);
  give_up_blocks(s);
  SequenceGroup& group = *s.group;
  std::erase(group.members, &s);
  if (group.members.empty()) {
    std::erase(running, &group);
    waiting.erase(&group);
    groups.erase(group.place.arrival);
  }
  sequences.erase(s.request.seq);
}

void Scheduler::Impl::commit_rows(Sequence& s) {
  const int sealed_before = s.table.sealed_count();
  s.table.commit(s.rows);
  if (options.kv_policy == KvPolicy::kRadix) cache_sealed(s, sealed_before);
  if (options.kv_policy != KvPolicy::kContiguous) s.table.drop_left_window();
  if (s.request.prompt_logits == PromptLogits::kAll)
    s.prompt_logits_done = std::clamp(s.computed(), s.prompt_logits_done, s.prompt_tokens);
  s.rows = 0;
}

void Scheduler::Impl::note_blocks(SequenceGroup& group) const {
  HeldBlocks all;
  for (int g = 0; g < group_count(); ++g) {
    const HeldBlocks blocks = blocks_of(group, g);
    all.held += blocks.held;
    all.as_copies += blocks.as_copies;
  }
  if (all.held < group.blocks_used_max) return;
  group.blocks_used_max = all.held;
  group.blocks_as_copies_max = all.as_copies;
}

Scheduler::Impl::HeldBlocks Scheduler::Impl::blocks_of(const SequenceGroup& group, int g) const {
  HeldBlocks blocks;
  if (group.members.size() == 1) {
    const BlockTable& table = group.lead().table;
    blocks.held = blocks.as_copies = table.blocks_used(g);
    blocks.unshared = table.blocks_unshared(g);
    return blocks;
  }
  std::vector<BlockId> ids;
  for (const Sequence* s : group.members)
    std::ranges::copy_if(s->table.ids(g), std::back_inserter(ids), [](BlockId id) { return id != kNoBlock; });
  std::ranges::sort(ids);
  blocks.as_copies = static_cast<int>(ids.size());
  const BlockPool& pool = *pools[static_cast<size_t>(g)];
  for (auto first = ids.begin(); first != ids.end();) {
    const auto last = std::find_if(first, ids.end(), [&](BlockId id) { return id != *first; });
    ++blocks.held;
    if (pool.pin_count(*first) == last - first) ++blocks.unshared;
    first = last;
  }
  return blocks;
}

void Scheduler::Impl::cache_sealed(Sequence& s, int first_block) {
  const auto block_tokens = static_cast<size_t>(options.geometry.block_tokens);
  for (int index = first_block; index < s.table.sealed_count(); ++index) {
    BlockIds own;
    for (int g = 0; g < group_count(); ++g)
      own[static_cast<size_t>(g)] = s.table.ids(g)[static_cast<size_t>(index)];
    const PrefixNodeId node = tree.insert(
        {.scope = s.request.scope,
         .parent = s.tip,
         .tokens = std::span(s.tokens).subspan(static_cast<size_t>(index) * block_tokens, block_tokens),
         .blocks = std::span(own).first(pools.size())});
    for (int g = 0; g < group_count(); ++g) {
      const BlockId winner = tree.block(node, g);
      if (winner != own[static_cast<size_t>(g)])
        s.table.replace(g, index, pool_pointers[static_cast<size_t>(g)]->pin(winner));
    }
    tree.hold(node);
    tree.release(std::exchange(s.tip, node));
  }
}

void Scheduler::Impl::audit_pins() const {
  for (int g = 0; g < group_count(); ++g) {
    const BlockPool& pool = *pool_pointers[static_cast<size_t>(g)];
    std::vector<int> holders(static_cast<size_t>(pool.total()), 0);
    std::vector<int> keepers(static_cast<size_t>(pool.total()), 0);
    for (const auto& [id, s] : sequences)
      for (BlockId block : s->table.ids(g))
        if (block != kNoBlock) ++holders[static_cast<size_t>(block.value)];
    for (const auto& [block, count] : pins.holders(g)) holders[static_cast<size_t>(block.value)] += count;
    for (const PendingCopy& copy : copies)
      if (copy.copy.group == g)
        ++(copy.source ? holders : keepers)[static_cast<size_t>(copy.copy.from.value)];
    for (int32_t block = 0; block < pool.total(); ++block) {
      CHECK(holders[static_cast<size_t>(block)] == pool.pin_count({block}));
      CHECK(keepers[static_cast<size_t>(block)] == pool.keep_count({block}));
    }
  }
}

void Scheduler::Impl::audit_path(const Sequence& s) const {
  PrefixNodeId node = s.tip;
  if (options.kv_policy != KvPolicy::kRadix) {
    CHECK(node == kNoPrefixNode);
    return;
  }
  for (int index = s.table.sealed_count(); index-- > 0; node = tree.parent(node)) {
    CHECK(node != kNoPrefixNode);
    for (int g = 0; g < group_count(); ++g) {
      const BlockId own = s.table.ids(g)[static_cast<size_t>(index)];
      CHECK(own == kNoBlock || own == tree.block(node, g));
    }
  }
  CHECK(node == kNoPrefixNode);
}

Scheduler::Scheduler(SchedulerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Scheduler::~Scheduler() = default;

void Scheduler::add(SequenceRequest request) {
  CHECK(!impl_->in_step);
  CHECK(check_admissible(request));
  const SeqId id = request.seq;
  const QueuePlace place =
      queue_place({.step = impl_->steps, .priority = request.priority, .order = impl_->arrivals++});
  SequenceGroup& group = impl_->groups[place.arrival];
  group.first = id;
  group.place = place;
  group.priority = request.priority;
  group.prompt_tokens = static_cast<int>(request.prompt.size());
  group.max_tokens = request.max_tokens;
  group.sequences_max = request.sequences;
  group.pace = request.pace;
  auto made = std::make_unique<Sequence>(std::move(request), impl_->options.geometry, impl_->pool_pointers);
  made->group = &group;
  group.members.push_back(made.get());
  CHECK(impl_->sequences.emplace(id, std::move(made)).second);
  impl_->waiting.insert(&group);
}

void Scheduler::fork(const ForkRequest& request) {
  CHECK(!impl_->in_step);
  const Sequence& parent = impl_->get(request.parent);
  CHECK(parent.group->running && parent.started);
  CHECK(parent.left_to_compute() <= 1 && parent.computed() >= parent.prompt_tokens);
  auto made = std::make_unique<Sequence>(parent, request);
  CHECK(made->generated() <= made->request.max_tokens);
  impl_->tree.hold(made->tip);
  made->group->members.push_back(made.get());
  ++made->group->forks;
  CHECK(impl_->sequences.emplace(request.child, std::move(made)).second);
}

void Scheduler::finish(SeqId seq) {
  CHECK(!impl_->in_step);
  impl_->end(impl_->get(seq));
}

void Scheduler::finish_request(SeqId seq) {
  CHECK(!impl_->in_step);
  const std::vector<Sequence*> members = impl_->get(seq).group->members;
  for (Sequence* s : members) impl_->end(*s);
}

ScheduledStep Scheduler::plan_step() {
  CHECK(!impl_->in_step);
  for (const auto& [id, s] : impl_->sequences) CHECK(s->left_to_compute() > 0);
  for (const auto& [arrival, group] : impl_->groups) CHECK(std::ssize(group.members) <= group.sequences_max);
  impl_->in_step = true;
  impl_->preempted_now = false;
  ++impl_->steps;
  impl_->plan_decodes();
  impl_->plan_prefills();
  return impl_->assemble();
}

void Scheduler::commit_step(std::span<const SampledToken> sampled) {
  CHECK(impl_->in_step);
  impl_->accounting.copies += std::ssize(impl_->copies);
  impl_->copies.clear();
  for (SequenceGroup* group : impl_->running) {
    for (Sequence* s : group->members) {
      if (s->rows > 0) impl_->commit_rows(*s);
      s->started_now = false;
    }
    if (!group->was_admitted) impl_->note_admission(*group);
    group->admitted_now = false;
    group->was_admitted = true;
    impl_->note_blocks(*group);
  }
  impl_->note_use();
  for (const SampledToken& sample : sampled) {
    Sequence& s = impl_->get(sample.seq);
    CHECK(s.started && s.left_to_compute() == 0 && s.generated() < s.request.max_tokens);
    s.tokens.push_back(sample.token);
  }
  impl_->in_step = false;
}

void Scheduler::abandon_step() {
  CHECK(impl_->in_step);
  const std::vector<SequenceGroup*> running = impl_->running;
  for (SequenceGroup* group : running) {
    for (Sequence* s : group->members) {
      s->rows = 0;
      if (impl_->options.kv_policy != KvPolicy::kContiguous) s->table.trim();
      if (s->started_now) impl_->give_up_blocks(*s);
    }
    if (!group->admitted_now) continue;
    if (!group->was_admitted) group->lead().cached_tokens = 0;
    impl_->stop_running(*group);
  }
  for (Impl::PendingCopy& copy : impl_->copies)
    copy.sequence->table.reshare_tail(copy.copy.group, std::move(copy.forked_from));
  impl_->copies.clear();
  impl_->in_step = false;
}

Result<PinId> Scheduler::pin_prefix(const PinRequest& request) {
  CHECK(!impl_->in_step);
  return impl_->pins.pin(request);
}

Result<> Scheduler::unpin_prefix(PinId pin) {
  CHECK(!impl_->in_step);
  return impl_->pins.unpin(pin);
}

void Scheduler::expire_pins(int64_t now_ns) {
  CHECK(!impl_->in_step);
  impl_->pins.expire(now_ns);
}

void Scheduler::drop_scope(CacheScope scope) {
  CHECK(!impl_->in_step);
  impl_->tree.drop_scope(scope);
}

void Scheduler::note_step_time(const StepTime& time) {
  impl_->pace = learn_pace(impl_->pace, time);
}

bool Scheduler::contains(SeqId seq) const {
  return impl_->sequences.contains(seq);
}

std::vector<LivingSequence> Scheduler::living() const {
  std::vector<LivingSequence> living;
  for (const auto& [arrival, group] : impl_->groups)
    for (const Sequence* s : group.members) living.push_back({.seq = s->request.seq, .request = group.first});
  return living;
}

SequenceFigures Scheduler::figures(SeqId seq) const {
  const Sequence& s = std::as_const(*impl_).get(seq);
  SequenceFigures figures;
  const SequenceState running_as =
      s.left_to_compute() > 1 || s.generated() == 0 ? SequenceState::kPrefilling : SequenceState::kDecoding;
  figures.state = s.started ? running_as : s.group->waiting_as;
  figures.prompt_tokens = s.prompt_tokens;
  figures.generated_tokens = s.generated();
  figures.computed_tokens = s.computed();
  figures.cached_tokens = s.cached_tokens;
  figures.preemptions = s.group->preemptions;
  figures.blocks_used = s.table.blocks_used();
  return figures;
}

RequestFigures Scheduler::request_figures(SeqId seq) const {
  const SequenceGroup& group = *std::as_const(*impl_).get(seq).group;
  RequestFigures figures;
  figures.sequences = static_cast<int>(group.members.size());
  figures.preemptions = group.preemptions;
  for (int g = 0; g < impl_->group_count(); ++g) {
    const Impl::HeldBlocks blocks = impl_->blocks_of(group, g);
    figures.blocks_used += blocks.held;
    figures.blocks_as_copies += blocks.as_copies;
  }
  figures.blocks_used_max = group.blocks_used_max;
  figures.blocks_as_copies_max = group.blocks_as_copies_max;
  return figures;
}

std::span<const TokenId> Scheduler::tokens(SeqId seq) const {
  return std::as_const(*impl_).get(seq).tokens;
}
int Scheduler::waiting_count() const {
  return static_cast<int>(std::ssize(impl_->sequences)) - running_count();
}
int Scheduler::running_count() const {
  int count = 0;
  for (const SequenceGroup* group : impl_->running) count += static_cast<int>(group->members.size());
  return count;
}
const BlockPool& Scheduler::pool(int group) const {
  return *impl_->pools.at(static_cast<size_t>(group));
}
const RadixTree& Scheduler::tree() const {
  return impl_->tree;
}
const PrefixPins& Scheduler::pins() const {
  return impl_->pins;
}

void Scheduler::audit() const {
  for (const auto& pool : impl_->pools) pool->audit();
  impl_->tree.audit();
  CHECK(impl_->running.size() + impl_->waiting.size() == impl_->groups.size());
  size_t members = 0;
  for (const auto& [arrival, group] : impl_->groups) {
    CHECK(group.running == !impl_->waiting.contains(const_cast<SequenceGroup*>(&group)));
    members += group.members.size();
  }
  CHECK(members == impl_->sequences.size());
  CHECK(impl_->in_step || impl_->copies.empty());
  for (const auto& [id, s] : impl_->sequences) {
    s->table.audit();
    CHECK(s->started || s->table.blocks_used() == 0);
    CHECK(s->group->running || !s->started);
    impl_->audit_path(*s);
  }
  impl_->audit_pins();
}

}  // namespace quire
