#include "engine/machine.h"

#include <fstream>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"

namespace quire {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

MachineInfo describe_machine() {
  MachineInfo machine;
  machine.cpu = cpu_name();
  machine.usable_cpus = static_cast<int>(usable_cpus().size());
  for (const KernelTable* kernels : available_kernels()) machine.isas.emplace_back(kernels->name);
  machine.default_isa = find_kernels("")->name;
  return machine;
}

}  // namespace quire
