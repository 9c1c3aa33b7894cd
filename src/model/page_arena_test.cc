#include "model/page_arena.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace quire {
namespace {

TEST(PageArena, IsZeroedAndAligned) {
  auto arena = PageArena::reserve(5 << 20, PageAdvice::kHuge, "a test");
  ASSERT_TRUE(arena.has_value());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->data()) % (2 << 20), 0u);
  for (size_t at = 0; at < arena->size(); at += 4096) EXPECT_EQ(arena->data()[at], std::byte{0});
  arena->data()[arena->size() - 1] = std::byte{7};
  PageArena moved = std::move(*arena);
  EXPECT_EQ(moved.data()[moved.size() - 1], std::byte{7});
}

TEST(PageArena, RefusesWhatNoMachineHas) {
  for (size_t bytes : {std::numeric_limits<size_t>::max(), size_t{1} << 62}) {
    auto arena = PageArena::reserve(bytes, PageAdvice::kDefault, "the moon");
    ASSERT_FALSE(arena.has_value());
    EXPECT_EQ(arena.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(arena.error().message.find("the moon"), std::string::npos);
    EXPECT_NE(arena.error().message.find(std::to_string(bytes)), std::string::npos);
  }
}

TEST(PageArena, OfNothingIsEmpty) {
  auto arena = PageArena::reserve(0, PageAdvice::kDefault, "nothing");
  ASSERT_TRUE(arena.has_value());
  EXPECT_EQ(arena->size(), 0u);
}

}  // namespace
}  // namespace quire
