// quire bench: what can be measured.
#include <utility>
#include <vector>

#include "cli/bench_commands.h"
#include "cli/command_options.h"

namespace quire {

CommandBody declare_bench(CLI::App& app) {
  std::vector<std::pair<CLI::App*, CommandBody>> benches;
  auto declare = [&](const char* name, const char* summary, CommandBody (*one)(CLI::App&)) {
    CLI::App& command = add_command(app, name, summary);
    benches.emplace_back(&command, one(command));
  };
  declare("latency", "Prefill and decode rates of one sequence", declare_bench_latency);
  declare("batch", "Prefill and decode rates of many sequences at once", declare_bench_batch);
  declare("throughput", "A trace of requests, replayed", declare_bench_throughput);
  declare("kernels", "The kernels alone, beside what this machine does at most", declare_bench_kernels);
  return [benches = std::move(benches)]() -> Result<int> {
    for (const auto& [command, body] : benches) {
      if (was_chosen(*command)) return body();
    }
    return kExitUsage;
  };
}

}  // namespace quire
