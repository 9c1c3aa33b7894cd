#include "files/packed_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/checked.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".packed";

uint64_t file_bytes_of(const PackedPlan& plan) {
  return packed_data_offset(plan.sections.size()) + plan.data_bytes;
}

}  // namespace

std::string PackedCache::path_of(const ContentHash& key) const {
  return options_.folder + "/" + key.hex() + std::string(kExtension);
}

Result<PackedFile> PackedCache::find(const PackedPlan& plan) const {
  PackedFile file = TRY(PackedFile::open(path_of(plan.key)));
  TRY(file.check(plan));
  return file;
}

Result<PackedWriter> PackedCache::begin(const PackedPlan& plan) const {
  std::error_code error;
  fs::create_directories(options_.folder, error);
  if (error)
    return fail(ErrorCode::kIo, "path", "cannot make the folder {}: {}", options_.folder, error.message());
  TRY(make_room(file_bytes_of(plan)));
  return PackedWriter::create(path_of(plan.key), plan);
}

std::vector<PackedCacheEntry> PackedCache::list() const {
  std::vector<PackedCacheEntry> entries;
  std::error_code error;
  for (fs::directory_iterator entry(options_.folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat info;
    const std::string path = entry->path().string();
    if (!path.ends_with(kExtension) || ::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    entries.push_back({.path = path,
                       .bytes = static_cast<uint64_t>(info.st_size),
                       .used_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec});
  }
  std::ranges::sort(entries, {}, [](const PackedCacheEntry& e) { return std::tie(e.used_ns, e.path); });
  return entries;
}

bool PackedCache::remove(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  // Where files cannot be locked nobody can tell who uses them; the bytes of one that is mapped outlive its
  // name.
  if (!file.is_open() || (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)) return false;
  return ::unlink(path.c_str()) == 0;
}

// Returns the bytes of those that live.
uint64_t PackedCache::remove_dead_writers() const {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(options_.folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPackingPrefix)) continue;
    std::error_code ignored;
    const uint64_t size = entry->file_size(ignored);
    if (!remove(entry->path().string()) && !ignored) bytes += size;
  }
  return bytes;
}

Result<> PackedCache::make_room(uint64_t bytes) const {
  const std::vector<PackedCacheEntry> entries = list();
  uint64_t used = remove_dead_writers();
  for (const PackedCacheEntry& entry : entries) used += entry.bytes;
  for (const PackedCacheEntry& entry : entries) {
    if (bytes > options_.bytes_max || used <= options_.bytes_max - bytes) break;
    if (remove(entry.path)) used -= entry.bytes;
  }
  if (bytes <= options_.bytes_max && used <= options_.bytes_max - bytes) return {};
  return fail(ErrorCode::kResourceExhausted, "bytes_max",
              "the packed weights take {} bytes, {} may hold {}, of which {} are in use", bytes,
              options_.folder, options_.bytes_max, used);
}

}  // namespace quire
