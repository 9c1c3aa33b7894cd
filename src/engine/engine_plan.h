// What an engine will be, decided before anything large is allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/kv_geometry.h"
#include "core/model_spec.h"
#include "kernels/kernel_table.h"
#include "quire/engine.h"

namespace quire {

// Errors: kInvalidArgument naming the option, its value and its limit. Looks at the options alone.
[[nodiscard]] Result<> validate_options(const EngineOptions& options);

// Error kUnsupported lists the tables that can run here.
[[nodiscard]] Result<const KernelTable*> choose_kernels(const std::string& isa);

// The limit in force. Error kInvalidArgument when the option exceeds what the model was made for.
[[nodiscard]] Result<int> choose_context_length(int wanted, const ModelSpec& spec);

// What the sizes of the block pools depend on.
struct PoolDemand {
  int context_length = 0;
  int step_tokens_max = 0;
  uint64_t kv_bytes = 0;  // 0: one request of context_length, but at most bytes_max
  uint64_t bytes_max = 0;
};

// Blocks per layer group. The bytes are shared out so that the longest request that they can hold is as long
// as possible; what is more than one request of context_length needs goes to all groups in proportion.
// Error kResourceExhausted when not even one block per group fits.
[[nodiscard]] Result<std::vector<int>> plan_pools(const KvGeometry& geometry, const PoolDemand& demand);

// Memory that this process may use: the machine's, or less where a cgroup says so.
[[nodiscard]] uint64_t usable_memory_bytes();

}  // namespace quire
