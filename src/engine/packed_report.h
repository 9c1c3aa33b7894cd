// The cache of packed weights as `quire cache` shows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct PackedFileReport {
  std::string path;
  std::string model;  // "" when the file cannot be read
  uint64_t bytes = 0;
  int64_t used_ns = 0;  // since 1970
  std::string fault;    // why it will not be used; "" = nothing found
};

enum class PackedCheck : uint8_t {
  kHeaders,  // what every start checks
  kAll,      // reads all bytes
};

// Longest unused first. None when there is no folder.
[[nodiscard]] std::vector<PackedFileReport> report_packed_cache(const std::string& folder, PackedCheck check);

// What was removed, and what is in use and stays.
struct PackedRemoval {
  int files = 0;
  uint64_t bytes = 0;
  int files_kept = 0;
};
[[nodiscard]] PackedRemoval clear_packed_cache(const std::string& folder);

}  // namespace quire
