#include "tests/sim/checkers/door.h"

#include <algorithm>

#include "sched/policy.h"

namespace quire::sim {
namespace {

bool is_sane(const SequenceRequest& request, const SchedulerOptions& options) {
  const int width_max = std::min(options.running_sequences_max, options.step_tokens_max);
  return !request.prompt.empty() && request.max_tokens >= 0 && request.prefill_chunk_tokens >= 0 &&
         request.sequences >= 1 && request.sequences <= width_max && request.priority >= -kPriorityMax &&
         request.priority <= kPriorityMax;
}

// Whether a single sequence fits: its positions, block by block.
bool fits_alone(const SequenceRequest& request, const SchedulerOptions& options) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt + request.max_tokens > options.context_length) return false;
  const int64_t positions = prompt + std::max(0, request.max_tokens - 1);
  for (size_t g = 0; g < options.geometry.groups.size(); ++g) {
    int64_t blocks = 0;
    for (int64_t p = 0; p < positions; p += options.geometry.block_tokens) ++blocks;
    const int window = options.geometry.groups[g].window;
    if (window > 0 && options.kv_policy != KvPolicy::kContiguous) {
      int64_t seen = 1;  // by the last position of a block, and the most at a place that is worst
      for (int64_t p = 1; p < window; p += options.geometry.block_tokens) ++seen;
      blocks = std::min(blocks, seen);
    }
    if (blocks > options.block_counts[g] - options.pinned_blocks_max) return false;
  }
  return true;
}

}  // namespace

void Door::on_arrival(const Arrived& arrived) {
  const SequenceRequest& request = arrived.client.sequence;
  if (!is_sane(request, options_) || !fits_alone(request, options_))
    violated("request {} was let in although it cannot be served", request.seq.value);
}

void Door::on_refusal(const Refused& refused) {
  const SequenceRequest& request = refused.client.sequence;
  const bool has_number =
      std::ranges::any_of(refused.error.message, [](char c) { return c >= '0' && c <= '9'; });
  if (refused.error.field.empty() || (!has_number && !request.prompt.empty()))
    violated("request {} was refused without field and numbers: {}", request.seq.value,
             refused.error.message);
  const auto expected =
      is_sane(request, options_) ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidArgument;
  const bool contiguous_forks = options_.kv_policy == KvPolicy::kContiguous && request.sequences > 1;
  if (refused.error.code != expected && !contiguous_forks)
    violated("request {} was refused for the wrong reason: {}", request.seq.value, refused.error.message);
  if (request.sequences == 1 && is_sane(request, options_) && fits_alone(request, options_))
    violated("request {} was refused although it fits: {}", request.seq.value, refused.error.message);
}

}  // namespace quire::sim
