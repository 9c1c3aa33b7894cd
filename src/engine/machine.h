// What this machine offers to the engine, for people and for `quire info`.
#pragma once

#include <string>
#include <vector>

namespace quire {

struct MachineInfo {
  std::string cpu;                // model name; "unknown" where the system does not say
  int usable_cpus = 1;            // affinity and cgroup quota taken into account
  std::vector<std::string> isas;  // names for EngineOptions::isa; the later extend the earlier
  std::string default_isa;        // what an empty EngineOptions::isa means here
};

[[nodiscard]] MachineInfo describe_machine();

}  // namespace quire
