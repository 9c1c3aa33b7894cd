// What a scheduler takes in: its options, and requests at the door.
#include <algorithm>
#include <limits>

#include "sched/scheduler_state.h"

namespace quire {
namespace {

constexpr int kBlockTokensMax = 1 << 16;
constexpr int kStepTokensMax = 1 << 20;
constexpr int kItlTargetMsMax = 60'000;

struct Bounds {
  const char* name;
  int64_t value, min, max;
};

Result<> check_bounds(const Bounds& b) {
  if (b.value >= b.min && b.value <= b.max) return {};
  return fail(ErrorCode::kInvalidArgument, b.name, "{} is {}, must be >= {} and at most {}", b.name, b.value,
              b.min, b.max);
}

}  // namespace

Result<> Scheduler::check_options(const SchedulerOptions& options) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto& counts = options.block_counts;
  TRY(check_bounds({"layer_groups", std::ssize(options.geometry.groups), 1, kLayerGroupsMax}));
  const int64_t groups = std::ssize(options.geometry.groups);
  TRY(check_bounds({"block_counts", std::ssize(counts), groups, groups}));
  for (int count : counts) TRY(check_bounds({"kv_blocks", count, 1, kMost}));
  TRY(check_bounds({"block_tokens", options.geometry.block_tokens, 1, kBlockTokensMax}));
  TRY(check_bounds({"context_length", options.context_length, 1, kMost}));
  TRY(check_bounds({"step_tokens_max", options.step_tokens_max, 1, kStepTokensMax}));
  TRY(check_bounds({"running_sequences_max", options.running_sequences_max, 1, kStepTokensMax}));
  TRY(check_bounds({"itl_target_ms", options.itl_target_ms, 0, kItlTargetMsMax}));
  const int64_t spare = *std::ranges::min_element(counts) - 1;
  TRY(check_bounds({"pinned_blocks_max", options.pinned_blocks_max, 0, spare}));
  return {};
}

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
  if (request.sequences < 1 || request.sequences > options.running_sequences_max) {
    return fail(ErrorCode::kInvalidArgument, "n", "n is {}, must be >= 1 and at most {}", request.sequences,
                options.running_sequences_max);
  }
  if (request.sequences > 1 && options.kv_policy == KvPolicy::kContiguous)
    return fail(ErrorCode::kInvalidArgument, "n", "n is {}, with kv_policy contiguous it must be 1",
                request.sequences);
  if (request.priority < -kPriorityMax || request.priority > kPriorityMax) {
    return fail(ErrorCode::kInvalidArgument, "priority", "priority is {}, must be >= {} and at most {}",
                request.priority, -kPriorityMax, kPriorityMax);
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
  return impl_->check_pools(request);
}

Result<> Scheduler::Impl::check_pools(const SequenceRequest& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  // The last sampled token is never computed.
  const int64_t length = prompt + std::max(0, request.max_tokens - 1);
  const auto peak = [&](int64_t tokens, int sequences) {
    return peak_of({.prompt_tokens = prompt, .tokens = tokens, .sequences = sequences});
  };
  const BlockCounts for_prompt = peak(prompt, 1);
  const BlockCounts for_one = peak(length, 1);
  const BlockCounts for_all = peak(length, request.sequences);
  for (size_t g = 0; g < options.block_counts.size(); ++g) {
    const int total = options.block_counts[g] - options.pinned_blocks_max;
    if (for_all[g] <= total) continue;
    if (for_one[g] <= total) {
      return fail(
          ErrorCode::kResourceExhausted, "n",
          "{} sequences of {} prompt tokens and max_tokens {} need {} KV blocks of {} tokens in layer "
          "group {}, the pool has {} for requests; one sequence needs {}",
          request.sequences, prompt, request.max_tokens, for_all[g], options.geometry.block_tokens, g, total,
          for_one[g]);
    }
    return fail(ErrorCode::kResourceExhausted, for_prompt[g] > total ? "prompt_token_ids" : "max_tokens",
                "{} prompt tokens and max_tokens {} need {} KV blocks of {} tokens in layer group {}, the "
                "pool has {} for requests",
                prompt, request.max_tokens, for_one[g], options.geometry.block_tokens, g, total);
  }
  return {};
}

}  // namespace quire
