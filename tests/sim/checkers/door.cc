#include "tests/sim/checkers/door.h"

#include <algorithm>

#include "sched/policy.h"

namespace quire::sim {
namespace {

bool lies_in(int value, int low, int high) {
  return value >= low && value <= high;
}

bool is_sane(const Request& wish, const SchedulerOptions& options) {
  const int most = std::min(options.running_sequences_max, options.step_tokens_max);
  if (wish.prompt_token_ids.empty() || wish.sampling.max_tokens < 0 || wish.prefill_chunk_tokens < 0)
    return false;
  for (TokenId token : wish.prompt_token_ids)
    if (!lies_in(token, 0, kVocab - 1)) return false;
  if (!lies_in(wish.priority, -kPriorityMax, kPriorityMax) || !lies_in(wish.n, 1, most)) return false;
  if (!wish.beam) return wish.best_of == 0 || lies_in(wish.best_of, wish.n, most);
  return lies_in(wish.beam->width, wish.n, most) && wish.best_of == 0 && wish.sampling.temperature == 0 &&
         wish.sampling.top_k == 0 && wish.sampling.top_p == 1;
}

bool is_single(const Request& wish) {
  return wish.sampling.max_tokens == 0 || (wish.n == 1 && wish.best_of <= 1 && !wish.beam);
}

// Whether a single sequence fits: its positions, block by block.
bool fits_alone(const Request& wish, const SchedulerOptions& options) {
  const auto prompt = static_cast<int64_t>(wish.prompt_token_ids.size());
  if (prompt + wish.sampling.max_tokens > options.context_length) return false;
  const int64_t positions = prompt + std::max(0, wish.sampling.max_tokens - 1);
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
  if (!is_sane(arrived.wish, options()) || !fits_alone(arrived.wish, options()))
    violated("request {} was let in although it cannot be served", arrived.request.value);
  if (watched_.inbox.waiting_count() > watched_.inbox_requests_max)
    violated("{} requests wait, the inbox takes {}", watched_.inbox.waiting_count(),
             watched_.inbox_requests_max);
}

void Door::on_refusal(const Refused& refused) {
  const Request& wish = refused.wish;
  const Error& error = refused.error;
  const bool has_number = std::ranges::any_of(error.message, [](char c) { return c >= '0' && c <= '9'; });
  if (error.field.empty() || (!has_number && !wish.prompt_token_ids.empty()))
    violated("a request was refused without field and numbers: {}", error.message);
  const bool sane = is_sane(wish, options());
  if (error.code == ErrorCode::kOverloaded) {
    if (!sane || watched_.inbox.waiting_count() != watched_.inbox_requests_max)
      violated("a request was refused as one too many: {}", error.message);
    return;
  }
  const auto expected = sane ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidArgument;
  const bool contiguous_forks = options().kv_policy == KvPolicy::kContiguous && !is_single(wish);
  if (error.code != expected && !contiguous_forks)
    violated("a request was refused for the wrong reason: {}", error.message);
  if (is_single(wish) && sane && fits_alone(wish, options()))
    violated("a request was refused although it fits: {}", error.message);
}

}  // namespace quire::sim
