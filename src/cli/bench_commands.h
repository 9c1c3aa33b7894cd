// The measuring commands below `quire bench`: a file each.
#pragma once

#include "cli/commands.h"

namespace quire {

CommandBody declare_bench_latency(CLI::App& command);
CommandBody declare_bench_batch(CLI::App& command);
CommandBody declare_bench_throughput(CLI::App& command);
CommandBody declare_bench_kernels(CLI::App& command);

}  // namespace quire
