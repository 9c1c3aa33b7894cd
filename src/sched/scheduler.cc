#include "sched/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sched/scheduler_state.h"

namespace quire {
namespace {

std::vector<std::unique_ptr<BlockPool>> make_pools(const SchedulerOptions& options) {
  CHECK(options.block_counts.size() == options.geometry.groups.size());
  CHECK(!options.block_counts.empty() && options.block_counts.size() <= kLayerGroupsMax);
  std::vector<std::unique_ptr<BlockPool>> pools;
  for (int count : options.block_counts) {
    CHECK(count >= 1);
    pools.push_back(std::make_unique<BlockPool>(count));
  }
  return pools;
}

std::vector<BlockPool*> pointers_to(const std::vector<std::unique_ptr<BlockPool>>& pools) {
  std::vector<BlockPool*> pointers;
  for (const auto& pool : pools) pointers.push_back(pool.get());
  return pointers;
}

SchedulerOptions checked(SchedulerOptions options) {
  CHECK(options.geometry.block_tokens >= 1);
  CHECK(options.context_length >= 1);
  CHECK(options.step_tokens_max >= 1);
  CHECK(options.running_sequences_max >= 1);
  // Every running sequence may decode in every step.
  options.running_sequences_max = std::min(options.running_sequences_max, options.step_tokens_max);
  return options;
}

}  // namespace

Scheduler::Impl::Impl(SchedulerOptions given)
    : options(checked(std::move(given))),
      pools(make_pools(options)),
      pool_pointers(pointers_to(pools)),
      tree(options.geometry, pool_pointers) {}

Sequence& Scheduler::Impl::get(SeqId seq) {
  const auto found = sequences.find(seq);
  CHECK(found != sequences.end());
  return *found->second;
}

const Sequence& Scheduler::Impl::get(SeqId seq) const {
  return const_cast<Impl*>(this)->get(seq);
}

void Scheduler::Impl::run(Sequence& s) {
  waiting.erase(&s);
  const auto by_arrival = [](const Sequence* a, const Sequence* b) {
    return a->place.arrival < b->place.arrival;
  };
  running.insert(std::upper_bound(running.begin(), running.end(), &s, by_arrival), &s);
  s.running = true;
  s.admitted_now = true;
}

void Scheduler::Impl::stop_running(Sequence& s) {
  give_up_blocks(s);
  std::erase(running, &s);
  s.running = false;
  s.admitted_now = false;
  s.rows = 0;
  waiting.insert(&s);
}

void Scheduler::Impl::give_up_blocks(Sequence& s) {
  // Sources of copies before their parents, which the table pins.
  std::erase_if(copies, [&](const PendingCopy& c) { return c.sequence == &s; });
  tree.release(std::exchange(s.tip, kNoPrefixNode));
  s.table.release();
}

void Scheduler::Impl::commit_rows(Sequence& s) {
  const int sealed_before = s.table.sealed_count();
  s.table.commit(s.rows);
  cache_sealed(s, sealed_before);
  s.table.drop_left_window();
  if (s.request.prompt_logits == PromptLogits::kAll)
    s.prompt_logits_done = std::clamp(s.computed(), s.prompt_logits_done, s.prompt_tokens);
  s.rows = 0;
  s.admitted_now = false;
  s.was_admitted = true;
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
    for (const auto& [id, s] : sequences)
      for (BlockId block : s->table.ids(g))
        if (block != kNoBlock) ++holders[static_cast<size_t>(block.value)];
    for (const PendingCopy& copy : copies)
      if (copy.copy.group == g) ++holders[static_cast<size_t>(copy.copy.from.value)];
    for (int32_t block = 0; block < pool.total(); ++block) {
      const int held = holders[static_cast<size_t>(block)];
      const BlockState state = pool.state({block});
      CHECK(held == (state == BlockState::kOpen ? 1 : pool.pin_count({block})));
    }
  }
}

void Scheduler::Impl::audit_path(const Sequence& s) const {
  PrefixNodeId node = s.tip;
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

Result<> Scheduler::check_admissible(const SequenceRequest& request) const {
  const SchedulerOptions& options = impl_->options;
  if (request.prompt.empty())
    return fail(ErrorCode::kInvalidArgument, "prompt_token_ids",
                "prompt_token_ids is empty, at least 1 is needed");
  if (request.max_tokens < 0)
    return fail(ErrorCode::kInvalidArgument, "max_tokens", "max_tokens is {}, must be >= 0",
                request.max_tokens);
  if (request.prefill_chunk_tokens < 0) {
    return fail(ErrorCode::kInvalidArgument, "prefill_chunk_tokens",
                "prefill_chunk_tokens is {}, must be >= 0", request.prefill_chunk_tokens);
  }
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t context = options.context_length;
  if (prompt > context) {
    return fail(ErrorCode::kResourceExhausted, "prompt_token_ids",
                "the prompt has {} tokens, the context length is {}", prompt, context);
  }
  if (prompt + request.max_tokens > context) {
    return fail(ErrorCode::kResourceExhausted, "max_tokens",
                "{} prompt tokens and max_tokens {} make {}, the context length is {}", prompt,
                request.max_tokens, prompt + request.max_tokens, context);
  }
  // The last sampled token is never computed.
  const BlockCounts for_prompt = peak_blocks(options.geometry, prompt);
  const BlockCounts for_all = peak_blocks(options.geometry, prompt + std::max(0, request.max_tokens - 1));
  for (size_t g = 0; g < options.block_counts.size(); ++g) {
    if (for_all[g] <= options.block_counts[g]) continue;
    const bool prompt_alone = for_prompt[g] > options.block_counts[g];
    return fail(ErrorCode::kResourceExhausted, prompt_alone ? "prompt_token_ids" : "max_tokens",
                "{} prompt tokens and max_tokens {} need {} KV blocks of {} tokens in layer group {}, the "
                "pool has {}",
                prompt, request.max_tokens, for_all[g], options.geometry.block_tokens, g,
                options.block_counts[g]);
  }
  return {};
}

void Scheduler::add(SequenceRequest request) {
  CHECK(!impl_->in_step);
  CHECK(check_admissible(request));
  const SeqId id = request.seq;
  const QueuePlace place =
      queue_place({.step = impl_->steps, .priority = request.priority, .order = impl_->arrivals++});
  auto made = std::make_unique<Sequence>(std::move(request), impl_->options.geometry, impl_->pool_pointers);
  made->place = place;
  const auto [at, is_new] = impl_->sequences.emplace(id, std::move(made));
  CHECK(is_new);
  impl_->waiting.insert(at->second.get());
}

void Scheduler::finish(SeqId seq) {
  CHECK(!impl_->in_step);
  Sequence& s = impl_->get(seq);
  impl_->give_up_blocks(s);
  std::erase(impl_->running, &s);
  impl_->waiting.erase(&s);
  impl_->sequences.erase(seq);
}

ScheduledStep Scheduler::plan_step() {
  CHECK(!impl_->in_step);
  for (const auto& [id, s] : impl_->sequences) CHECK(s->left_to_compute() > 0);
  impl_->in_step = true;
  impl_->preempted_now = false;
  ++impl_->steps;
  impl_->plan_decodes();
  impl_->plan_prefills();
  return impl_->assemble();
}

void Scheduler::commit_step(std::span<const SampledToken> sampled) {
  CHECK(impl_->in_step);
  impl_->copies.clear();
  for (Sequence* s : impl_->running)
    if (s->rows > 0) impl_->commit_rows(*s);
  for (const SampledToken& sample : sampled) {
    Sequence& s = impl_->get(sample.seq);
    CHECK(s.running && s.left_to_compute() == 0 && s.generated() < s.request.max_tokens);
    s.tokens.push_back(sample.token);
  }
  impl_->in_step = false;
}

void Scheduler::abandon_step() {
  CHECK(impl_->in_step);
  const std::vector<Sequence*> running = impl_->running;
  for (Sequence* s : running) {
    s->rows = 0;
    s->table.trim();
    if (!s->admitted_now) continue;
    if (!s->was_admitted) s->cached_tokens = 0;
    impl_->stop_running(*s);
  }
  CHECK(impl_->copies.empty());
  impl_->in_step = false;
}

bool Scheduler::contains(SeqId seq) const {
  return impl_->sequences.contains(seq);
}

SequenceFigures Scheduler::figures(SeqId seq) const {
  const Sequence& s = std::as_const(*impl_).get(seq);
  SequenceFigures figures;
  const SequenceState running_as =
      s.left_to_compute() > 1 || s.generated() == 0 ? SequenceState::kPrefilling : SequenceState::kDecoding;
  figures.state = s.running ? running_as : s.waiting_as;
  figures.prompt_tokens = s.prompt_tokens;
  figures.generated_tokens = s.generated();
  figures.computed_tokens = s.computed();
  figures.cached_tokens = s.cached_tokens;
  figures.preemptions = s.preemptions;
  figures.blocks_used = s.table.blocks_used();
  return figures;
}

std::span<const TokenId> Scheduler::tokens(SeqId seq) const {
  return std::as_const(*impl_).get(seq).tokens;
}
int Scheduler::waiting_count() const {
  return static_cast<int>(impl_->waiting.size());
}
int Scheduler::running_count() const {
  return static_cast<int>(impl_->running.size());
}
const BlockPool& Scheduler::pool(int group) const {
  return *impl_->pools.at(static_cast<size_t>(group));
}
const RadixTree& Scheduler::tree() const {
  return impl_->tree;
}

void Scheduler::audit() const {
  for (const auto& pool : impl_->pools) pool->audit();
  impl_->tree.audit();
  CHECK(impl_->running.size() + impl_->waiting.size() == impl_->sequences.size());
  CHECK(impl_->in_step || impl_->copies.empty());
  for (const auto& [id, s] : impl_->sequences) {
    s->table.audit();
    CHECK(s->running || s->table.blocks_used() == 0);
    impl_->audit_path(*s);
  }
  impl_->audit_pins();
}

}  // namespace quire
