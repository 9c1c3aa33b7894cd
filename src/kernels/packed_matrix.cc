#include "kernels/packed_matrix.h"

#include "base/check.h"
#include "kernels/packed_layout.h"

namespace quire {

bool has_codes(TensorType type) {
  return packed_layout(type).scales != ScaleKind::kNone;
}

size_t packed_panel_bytes(TensorType type, int in) {
  const TensorTypeInfo& info = tensor_type_info(type);
  CHECK(in > 0 && in % info.block_elements == 0);
  const auto blocks = static_cast<size_t>(in / info.block_elements);
  const auto block_bytes =
      has_codes(type) ? packed_layout(type).block_bytes() : kPanelRows * info.block_bytes;
  return round_up(blocks * static_cast<size_t>(block_bytes), size_t{64});
}

}  // namespace quire
