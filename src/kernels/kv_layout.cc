#include "kernels/kv_layout.h"

#include "base/check.h"
#include "base/checked.h"

namespace quire {
namespace {

// Bytes of `count` codes that lie side by side.
size_t code_bytes(KvType type, int count) {
  const auto n = static_cast<size_t>(count);
  switch (type) {
    case KvType::kF32:
      return 4 * n;
    case KvType::kF16:
    case KvType::kBF16:
      return 2 * n;
    case KvType::kFp8:
    case KvType::kInt8:
      return n;
    case KvType::kInt4:
      return ceil_div<size_t>(n, 2);
  }
  UNREACHABLE();
}

// Of one token's K: int4 has a bit more for each dimension.
size_t sign_bytes(KvType type, int key_dim) {
  return type == KvType::kInt4 ? ceil_div<size_t>(static_cast<size_t>(key_dim), 8) : 0;
}

}  // namespace

KvLayout kv_layout(KvType type, int block_tokens, int key_dim, int value_dim) {
  CHECK(block_tokens > 0 && key_dim > 0 && value_dim > 0);
  const auto tokens = static_cast<size_t>(block_tokens);
  KvLayout layout;
  layout.key_signs = code_bytes(type, key_dim) * kKeyTile;
  layout.key_scales = layout.key_signs + sign_bytes(type, key_dim) * kKeyTile;
  layout.key_tile_bytes = layout.key_scales + kv_scale_bytes(type) * kKeyTile;
  layout.values = ceil_div<size_t>(tokens, kKeyTile) * layout.key_tile_bytes;
  layout.value_row_bytes = code_bytes(type, value_dim);
  layout.value_scales = layout.values + tokens * layout.value_row_bytes;
  layout.bytes = round_up<size_t>(layout.value_scales + tokens * kv_scale_bytes(type), 64);
  return layout;
}

}  // namespace quire
