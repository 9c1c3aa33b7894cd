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
#include "base/clock.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".packed";

uint64_t file_bytes_of(const PackedPlan& plan) {
  return packed_data_offset(plan.sections.size()) + plan.data_bytes;
}

enum class Lock : uint8_t { kTaken, kRefused, kUnknown };  // unknown: files cannot be locked here

Lock lock_alone(const FileDescriptor& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return Lock::kTaken;
  return errno == EWOULDBLOCK ? Lock::kRefused : Lock::kUnknown;
}

FileDescriptor open_to_lock(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

// Whether the path still names the open file: another process may have put a new one in its place.
bool is_named(const FileDescriptor& file, const std::string& path) {
  struct stat mine;
  struct stat its;
  return ::fstat(file.get(), &mine) == 0 && ::lstat(path.c_str(), &its) == 0 && mine.st_dev == its.st_dev &&
         mine.st_ino == its.st_ino;
}

bool is_in_use(const std::string& path) {
  const FileDescriptor file = open_to_lock(path);
  return file.is_open() && lock_alone(file) == Lock::kRefused;
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
  TRY(make_room(file_bytes_of(plan), path_of(plan.key)));
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
                       .used_ns = nanoseconds_of(info.st_mtim)});
  }
  std::ranges::sort(entries, {}, [](const PackedCacheEntry& e) { return std::tie(e.used_ns, e.path); });
  return entries;
}

bool PackedCache::remove(const std::string& path) {
  const FileDescriptor file = open_to_lock(path);
  // Where files cannot be locked nobody can tell who uses them; the bytes of one that is mapped outlive its
  // name.
  if (!file.is_open() || lock_alone(file) == Lock::kRefused || !is_named(file, path)) return false;
  return ::unlink(path.c_str()) == 0;
}

PackedLeftovers PackedCache::remove_dead_writers() const {
  PackedLeftovers found;
  std::error_code error;
  for (fs::directory_iterator entry(options_.folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPackingPrefix)) continue;
    const std::string path = entry->path().string();
    std::error_code ignored;
    const uint64_t size = entry->file_size(ignored);
    const FileDescriptor file = open_to_lock(path);
    // A writer needs the name of its file, so that one that may live stays.
    const bool dead = file.is_open() && lock_alone(file) == Lock::kTaken && is_named(file, path);
    if (dead && ::unlink(path.c_str()) == 0) {
      found.files_removed += 1;
      found.bytes_removed += ignored ? 0 : size;
    } else {
      found.bytes_alive += ignored ? 0 : size;
    }
  }
  return found;
}

// The file that the new one replaces does not count. Nothing is removed when that would not be enough.
Result<> PackedCache::make_room(uint64_t bytes, const std::string& replaced) const {
  std::vector<PackedCacheEntry> entries = list();
  std::erase_if(entries, [&](const PackedCacheEntry& entry) { return entry.path == replaced; });
  uint64_t held = remove_dead_writers().bytes_alive;
  uint64_t used = held;
  for (const PackedCacheEntry& entry : entries) {
    used += entry.bytes;
    if (is_in_use(entry.path)) held += entry.bytes;
  }
  const auto fits = [&](uint64_t others) {
    return bytes <= options_.bytes_max && others <= options_.bytes_max - bytes;
  };
  if (fits(held)) {
    for (const PackedCacheEntry& entry : entries) {
      if (fits(used)) return {};
      if (remove(entry.path)) used -= entry.bytes;
    }
    if (fits(used)) return {};
  }
  return fail(ErrorCode::kResourceExhausted, "bytes_max",
              "the packed weights take {} bytes, {} may hold {}, of which {} are in use", bytes,
              options_.folder, options_.bytes_max, held);
}

}  // namespace quire
