#include "engine/engine_plan.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/checked.h"
#include "kv/kv_store.h"
#include "sched/kv_policy.h"

namespace quire {
namespace {

constexpr int kThreadsMax = 256;
constexpr int kStepTokensMax = 8192;
constexpr int kItlTargetMsMax = 60000;
constexpr int kInboxRequestsMax = 1 << 20;
constexpr int kContextLengthMax = 1 << 28;
// A window's pool holds this many windows of one request: its own and the ones that its next turn reuses.
constexpr int kWindowsKept = 2;

Result<> check_option(const char* field, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::kInvalidArgument, field, "{} is {}, it must lie in [{}, {}]", field, value, low,
              high);
}

// Blocks of each group that one request of `tokens` tokens needs, with room to keep a window's past.
std::vector<int64_t> blocks_for(const KvGeometry& geometry, int64_t tokens, int step_tokens_max) {
  std::vector<int64_t> blocks;
  const int64_t block_tokens = geometry.block_tokens;
  for (const LayerGroup& group : geometry.groups) {
    int64_t need = ceil_div(tokens, block_tokens) + 1;  // one more: a partial hit is copied from somewhere
    if (group.window > 0) {
      int64_t seen = int64_t{group.window} + step_tokens_max + 2 * block_tokens;
      need = std::min(need, kWindowsKept * (ceil_div(seen, block_tokens) + 1));
    }
    blocks.push_back(need);
  }
  return blocks;
}

double bytes_of(const KvGeometry& geometry, const std::vector<int64_t>& blocks) {
  double bytes = 0;
  for (size_t g = 0; g < blocks.size(); ++g) {
    bytes +=
        static_cast<double>(blocks[g]) * static_cast<double>(kv_block_bytes(geometry, static_cast<int>(g)));
  }
  return bytes;
}

}  // namespace

Result<> validate_options(const EngineOptions& options) {
  if (options.model_path.empty()) {
    return fail(ErrorCode::kInvalidArgument, "model_path", "model_path is empty");
  }
  TRY(check_option("threads", options.threads, 0, kThreadsMax));
  TRY(check_option("context_length", options.context_length, 0, kContextLengthMax));
  TRY(check_option("inbox_requests_max", options.inbox_requests_max, 1, kInboxRequestsMax));
  TRY(check_option("step_tokens_max", options.step_tokens_max, 1, kStepTokensMax));
  TRY(check_option("itl_target_ms", options.itl_target_ms, 0, kItlTargetMsMax));
  if (!kv_type_from_name(options.kv_type)) {
    return fail(ErrorCode::kInvalidArgument, "kv_type", "kv_type is '{}', known are {}", options.kv_type,
                kv_type_names());
  }
  TRY(check_option("pinned_tokens_max", options.pinned_tokens_max, 0, kContextLengthMax));
  if (!kv_policy_from_name(options.kv_policy)) {
    return fail(ErrorCode::kInvalidArgument, "kv_policy", "kv_policy is '{}', known are {}, {} and {}",
                options.kv_policy, kv_policy_name(KvPolicy::kContiguous), kv_policy_name(KvPolicy::kPaged),
                kv_policy_name(KvPolicy::kRadix));
  }
  TRY(choose_kernels(options.isa));
  return {};
}

Result<const KernelTable*> choose_kernels(const std::string& isa) {
  if (const KernelTable* kernels = find_kernels(isa)) return kernels;
  std::string names;
  for (const KernelTable* table : available_kernels()) {
    if (!names.empty()) names += ", ";
    names += table->name;
  }
  return fail(ErrorCode::kUnsupported, "isa", "isa is '{}', this machine and build can run: {}", isa, names);
}

Result<int> choose_context_length(int wanted, const ModelSpec& spec) {
  if (wanted == 0) return spec.context_length;
  if (wanted <= spec.context_length) return wanted;
  return fail(ErrorCode::kInvalidArgument, "context_length",
              "context_length is {}, the model was made for {} positions", wanted, spec.context_length);
}

Result<std::vector<int>> plan_pools(const KvGeometry& geometry, const PoolDemand& demand) {
  CHECK(!geometry.groups.empty() && demand.context_length > 0);
  auto blocks = blocks_for(geometry, demand.context_length, demand.step_tokens_max);
  const double whole = bytes_of(geometry, blocks);
  const double limit = static_cast<double>(demand.kv_bytes > 0 ? demand.kv_bytes : demand.bytes_max);
  if (whole > limit) {
    // The largest request that fits; more tokens never need fewer blocks.
    int64_t low = 0, high = demand.context_length;
    while (low + 1 < high) {
      int64_t middle = low + (high - low) / 2;
      if (bytes_of(geometry, blocks_for(geometry, middle, demand.step_tokens_max)) <= limit) {
        low = middle;
      } else {
        high = middle;
      }
    }
    blocks = blocks_for(geometry, low, demand.step_tokens_max);
    if (low == 0) {
      return fail(ErrorCode::kResourceExhausted, "kv_bytes",
                  "the block pools may take {} bytes, one token needs {} in blocks of {} tokens",
                  static_cast<uint64_t>(limit),
                  static_cast<uint64_t>(bytes_of(geometry, blocks_for(geometry, 1, demand.step_tokens_max))),
                  geometry.block_tokens);
    }
  } else if (demand.kv_bytes > 0) {
    const double factor = limit / whole;
    for (int64_t& count : blocks) count = static_cast<int64_t>(static_cast<double>(count) * factor);
  }
  std::vector<int> counts;
  for (int64_t count : blocks) {
    counts.push_back(static_cast<int>(std::clamp<int64_t>(count, 1, std::numeric_limits<int>::max() / 2)));
  }
  return counts;
}

uint64_t usable_memory_bytes() {
  uint64_t bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::ifstream file("/sys/fs/cgroup/memory.max");  // a number, or "max"
  uint64_t limit = 0;
  if (file >> limit) bytes = std::min(bytes, limit);
  return bytes;
}

}  // namespace quire
