#include "files/content_hash.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire {

std::string ContentHash::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

ContentHash content_hash(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.low = hash.low64, .high = hash.high64};
}

ContentHash content_hash(std::span<const ContentHash> parts) {
  return content_hash(std::as_bytes(parts));
}

}  // namespace quire
