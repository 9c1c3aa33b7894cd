// What the scheduler's tests share: small prompts and small pools.
#pragma once

#include <numeric>
#include <vector>

#include "core/kv_geometry.h"
#include "sched/scheduler.h"

namespace quire {

using Tokens = std::vector<TokenId>;

// from, from + 1, …
inline Tokens counting(int n, TokenId from = 0) {
  Tokens tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// A layer group for each window (0 = full attention).
inline KvGeometry geometry_of(int block_tokens, const std::vector<int>& windows) {
  KvGeometry geometry{.block_tokens = block_tokens, .type = KvType::kF32, .groups = {}};
  for (int window : windows)
    geometry.groups.push_back({.layers = {}, .kv_heads = 1, .key_dim = 1, .value_dim = 1, .window = window});
  return geometry;
}

}  // namespace quire
