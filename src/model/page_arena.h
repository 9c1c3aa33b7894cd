// Anonymous memory for weights and step buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace quire {

enum class PageAdvice : uint8_t { kDefault, kHuge };

// One anonymous mapping, zeroed, touched when it is first written. Owned by the model; movable. The address
// is a multiple of 2 MiB, so that huge pages fit.
class PageArena {
 public:
  // Errors: kResourceExhausted, with the purpose and the bytes asked for.
  static Result<PageArena> reserve(size_t bytes, PageAdvice advice, std::string_view purpose);

  PageArena() = default;
  PageArena(PageArena&& other) noexcept;
  PageArena& operator=(PageArena&& other) noexcept;
  ~PageArena();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace quire
