// Identifiers that cannot be taken for one another.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace quire {

using TokenId = int32_t;   // index into the vocabulary; never negative in a valid sequence
using Position = int32_t;  // absolute place of a token in its sequence, from 0

// A distinct integer type per Tag.
template <class Tag, class Int>
struct Id {
  Int value{};
  auto operator<=>(const Id&) const = default;
};

using SeqId = Id<struct SeqTag, uint64_t>;          // one sequence (one sample, one beam)
using RequestId = Id<struct RequestTag, uint64_t>;  // one request; owns one or more sequences

// A frame of a block pool. Block ids of different layer groups are unrelated.
using BlockId = Id<struct BlockTag, int32_t>;
inline constexpr BlockId kNoBlock{-1};  // in a block table: never leased, or freed as it left the window

}  // namespace quire

template <class Tag, class Int>
struct std::hash<quire::Id<Tag, Int>> {
  size_t operator()(quire::Id<Tag, Int> id) const noexcept { return std::hash<Int>{}(id.value); }
};
