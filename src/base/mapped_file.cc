#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/clock.h"

namespace quire {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return fail(code, "path", "cannot open {}: {}", path, std::strerror(errno));
  }
  return map(file, path);
}

Result<MappedFile> MappedFile::map(const FileDescriptor& file, const std::string& path) {
  struct stat info;
  if (::fstat(file.get(), &info) != 0)
    return fail(ErrorCode::kIo, "path", "cannot stat {}: {}", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::kInvalidArgument, "path", "{} is not a regular file", path);
  const FileStamp stamp{.device = info.st_dev,
                        .inode = info.st_ino,
                        .bytes = static_cast<uint64_t>(info.st_size),
                        .modified_ns = nanoseconds_of(info.st_mtim),
                        .changed_ns = nanoseconds_of(info.st_ctim)};
  if (stamp.bytes == 0) return MappedFile(path, stamp, {});
  void* address = ::mmap(nullptr, stamp.bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED)
    return fail(ErrorCode::kIo, "path", "cannot map {}: {}", path, std::strerror(errno));
  return MappedFile(path, stamp, {static_cast<const std::byte*>(address), stamp.bytes});
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), stamp_(other.stamp_), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(stamp_, other.stamp_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release_pages(std::span<const std::byte> part) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  uintptr_t begin = round_up(reinterpret_cast<uintptr_t>(part.data()), page);
  uintptr_t end = (reinterpret_cast<uintptr_t>(part.data()) + part.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace quire
