#include "engine/packed_report.h"

#include <utility>

#include "files/packed_cache.h"

namespace quire {
namespace {

PackedCache cache_in(const std::string& folder) {
  return PackedCache({.folder = folder, .bytes_max = 0});
}

}  // namespace

std::vector<PackedFileReport> report_packed_cache(const std::string& folder, PackedCheck check) {
  std::vector<PackedFileReport> reports;
  for (PackedCacheEntry& entry : cache_in(folder).list()) {
    PackedFileReport report{.path = std::move(entry.path),
                            .model = {},
                            .bytes = entry.bytes,
                            .used_ns = entry.used_ns,
                            .fault = {}};
    const auto file = PackedFile::open(report.path);
    if (file) {
      report.model = file->model();
      const Result<> verified = check == PackedCheck::kAll ? file->verify_data() : Result<>();
      if (!verified) report.fault = verified.error().message;
    } else {
      report.fault = file.error().message;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

PackedRemoval clear_packed_cache(const std::string& folder) {
  PackedRemoval removal;
  const PackedLeftovers leftovers = cache_in(folder).remove_dead_writers();
  removal.files = leftovers.files_removed;
  removal.bytes = leftovers.bytes_removed;
  for (const PackedCacheEntry& entry : cache_in(folder).list()) {
    if (PackedCache::remove(entry.path)) {
      removal.files += 1;
      removal.bytes += entry.bytes;
    } else {
      removal.files_kept += 1;
    }
  }
  return removal;
}

}  // namespace quire
