// What bytes are, in 128 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace quire {

// XXH3-128 (xxHash): as fast as memory, and tells apart whatever happens to differ. No defence against
// somebody who makes two contents collide on purpose.
struct ContentHash {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const ContentHash&, const ContentHash&) = default;
  [[nodiscard]] std::string hex() const;  // 32 digits
};

[[nodiscard]] ContentHash content_hash(std::span<const std::byte> bytes);
// Of parts that were hashed by themselves, in this order.
[[nodiscard]] ContentHash content_hash(std::span<const ContentHash> parts);

}  // namespace quire
