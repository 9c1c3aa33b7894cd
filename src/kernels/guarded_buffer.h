// Memory for kernel tests that ends at an unmapped page, so that a read or a write behind it crashes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/checked.h"

namespace quire {

// `count` values that end exactly at an unmapped page and begin behind one; at first every byte is 0xff,
// which is NaN as float32 and as float16. Their alignment is that of count * sizeof(T).
template <class T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t count) : count_(count) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inner = round_up(count * sizeof(T) + 1, page);
    mapped_bytes_ = inner + 2 * page;
    void* memory = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
    CHECK(mprotect(memory_ + page, inner, PROT_READ | PROT_WRITE) == 0);
    data_ = reinterpret_cast<T*>(memory_ + page + inner - count * sizeof(T));
    poison();
  }
  ~GuardedBuffer() { munmap(memory_, mapped_bytes_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  void poison() const { std::memset(data_, 0xff, count_ * sizeof(T)); }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] size_t size() const { return count_; }
  [[nodiscard]] std::span<T> span() const { return {data_, count_}; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  size_t count_;
  size_t mapped_bytes_ = 0;
  std::byte* memory_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace quire
