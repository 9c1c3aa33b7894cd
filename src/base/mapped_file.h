// A read-only file in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace quire {

// Which file it was, in which state. Programs cannot set `changed_ns` (ctime): whatever alters the contents
// through the file system moves it on, also where size and `modified_ns` are restored afterwards.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
};

// Owns one mmap of a regular file. Movable; any thread may read bytes(). Reading past a file that somebody
// truncates meanwhile raises SIGBUS, as for every mmap.
class MappedFile {
 public:
  // Errors: kNotFound, kIo, kInvalidArgument (a directory, a pipe), each naming the path.
  static Result<MappedFile> open(const std::string& path);
  // Maps a file that is open for reading; `path` names it in errors.
  static Result<MappedFile> map(const FileDescriptor& file, const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // When it was mapped.
  [[nodiscard]] const FileStamp& stamp() const { return stamp_; }

  // Tells the kernel that `part` of bytes() will not be read again soon, so that its pages leave this
  // process's resident memory. The contents stay readable.
  void release_pages(std::span<const std::byte> part) const;

 private:
  MappedFile(std::string path, FileStamp stamp, std::span<const std::byte> bytes)
      : path_(std::move(path)), stamp_(stamp), bytes_(bytes) {}

  std::string path_;
  FileStamp stamp_;
  std::span<const std::byte> bytes_;
};

}  // namespace quire
