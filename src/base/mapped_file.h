// A read-only file in memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace quire {

// Owns one mmap of a regular file. Movable; any thread may read bytes(). Reading past a file that somebody
// truncates meanwhile raises SIGBUS, as for every mmap.
class MappedFile {
 public:
  // Errors: kNotFound, kIo, kInvalidArgument (a directory, a pipe), each naming the path.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Tells the kernel that `part` of bytes() will not be read again soon, so that its pages leave this
  // process's resident memory. The contents stay readable.
  void release_pages(std::span<const std::byte> part) const;

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes) : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace quire
