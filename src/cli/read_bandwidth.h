// The rate at which this machine's memory can be read: the ceiling of decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "base/thread_pool.h"

namespace quire {

// A buffer larger than the caches, and the kernel that reads it with all threads. Made by the command's
// thread, which is member 0 of the pool. Cost: the buffer (256 MB, or twice the largest cache).
class ReadBandwidth {
 public:
  // Error: kResourceExhausted without memory for the buffer.
  static Result<std::unique_ptr<ReadBandwidth>> make(int threads);

  // Bytes per second of the best of three passes: a ceiling, so disturbances do not count.
  [[nodiscard]] double measure();

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(uint64_t* words) const;
  };
  using Buffer = std::unique_ptr<uint64_t[], Unmap>;

  ReadBandwidth(Buffer buffer, int threads);
  double pass();

  Buffer buffer_;
  const size_t words_;
  ThreadPool pool_;
};

}  // namespace quire
