// Where the parts of a KV head's slice of a block lie, for every KvType; docs/formats/kv_block.md draws it.
//
// K comes in tiles of 16 tokens, V as a row a token. Types with codes (fp8, int8, int4) have scales beside
// them, one for a token's K and one for its V: those of K behind the codes of their tile, those of V behind
// all rows.
#pragma once

#include <cstddef>

#include "core/kv_geometry.h"

namespace quire {

inline constexpr int kKeyTile = 16;

// All in bytes.
struct KvLayout {
  size_t key_tile_bytes = 0;   // a tile: codes, then scales
  size_t key_signs = 0;        // int4: where a tile's signs begin, from the tile's start
  size_t key_scales = 0;       // where a tile's scales begin, from the tile's start
  size_t values = 0;           // where V begins, from the slice's start
  size_t value_row_bytes = 0;  // one token's codes
  size_t value_scales = 0;     // where V's scales begin, from the slice's start
  size_t bytes = 0;            // the whole slice, a multiple of 64
};

// All arguments >= 1.
[[nodiscard]] KvLayout kv_layout(KvType type, int block_tokens, int key_dim, int value_dim);

// Scales of one token beside its codes: fp8 a float16 scale; int8 a float16 scale and a float16 minimum; int4
// a scale of 8 bits.
[[nodiscard]] constexpr size_t kv_scale_bytes(KvType type) {
  switch (type) {
    case KvType::kF32:
    case KvType::kF16:
    case KvType::kBF16:
      return 0;
    case KvType::kFp8:
      return 2;
    case KvType::kInt8:
      return 4;
    case KvType::kInt4:
      return 1;
  }
  return 0;
}

[[nodiscard]] constexpr bool kv_has_scales(KvType type) {
  return kv_scale_bytes(type) > 0;
}

// The power of two that int4 rotates `dims` values by: its largest divisor of that kind.
[[nodiscard]] constexpr int kv_rotation(KvType type, int dims) {
  return type == KvType::kInt4 ? dims & -dims : 1;
}

}  // namespace quire
