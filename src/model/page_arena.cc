#include "model/page_arena.h"

#include <sys/mman.h>

#include <utility>

#include "base/checked.h"

namespace quire {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Result<PageArena> PageArena::reserve(size_t bytes, PageAdvice advice, std::string_view purpose) {
  PageArena arena;
  if (bytes == 0) return arena;
  auto with_slack = checked_add(bytes, kHugePage);
  void* mapping = with_slack ? ::mmap(nullptr, *with_slack, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                             : MAP_FAILED;
  if (mapping == MAP_FAILED) {
    return fail(ErrorCode::kResourceExhausted, "memory", "{} need {} bytes, which the system does not give",
                purpose, bytes);
  }
  arena.mapping_ = mapping;
  arena.mapping_bytes_ = *with_slack;
  arena.data_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(mapping), kHugePage));
  arena.size_ = bytes;
  if (advice == PageAdvice::kHuge) ::madvise(arena.data_, bytes, MADV_HUGEPAGE);
  return arena;
}

PageArena::PageArena(PageArena&& other) noexcept {
  *this = std::move(other);
}

PageArena& PageArena::operator=(PageArena&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PageArena::~PageArena() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

}  // namespace quire
