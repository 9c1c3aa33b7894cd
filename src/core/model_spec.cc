#include "core/model_spec.h"

#include <algorithm>

namespace quire {

KvGeometry ModelSpec::kv_geometry(KvType type) const {
  KvGeometry geometry;
  geometry.type = type;
  for (int index = 0; index < static_cast<int>(layers.size()); ++index) {
    const LayerSpec& layer = layers[index];
    auto same = std::ranges::find_if(geometry.groups, [&](const LayerGroup& group) {
      return group.kv_heads == layer.kv_heads && group.key_dim == layer.head_dim &&
             group.value_dim == layer.value_dim && group.window == layer.window;
    });
    if (same == geometry.groups.end()) {
      geometry.groups.push_back({.layers = {},
                                 .kv_heads = layer.kv_heads,
                                 .key_dim = layer.head_dim,
                                 .value_dim = layer.value_dim,
                                 .window = layer.window});
      same = std::prev(geometry.groups.end());
    }
    same->layers.push_back(index);
  }
  return geometry;
}

}  // namespace quire
