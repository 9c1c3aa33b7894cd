// The rate at which this machine's memory can be read: the ceiling of decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/thread_pool.h"

namespace quire {

// A buffer larger than the caches, and the kernel that reads it with all threads. Made by the command's
// thread, which is member 0 of the pool. Cost: the buffer (256 MB, or four times the largest cache).
class ReadBandwidth {
 public:
  explicit ReadBandwidth(int threads);

  // Bytes per second of one pass.
  [[nodiscard]] double measure();

 private:
  size_t words_;
  std::unique_ptr<uint64_t[]> buffer_;
  ThreadPool pool_;
};

}  // namespace quire
