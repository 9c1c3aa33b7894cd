// A kernel table from the bodies and the words of an instruction set.
#pragma once

#include <string_view>

#include "kernels/attention_body.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul_body.h"
#include "kernels/quantize_body.h"
#include "kernels/rowwise_body.h"

namespace quire {

template <class W>
[[nodiscard]] constexpr KernelTable table_of(std::string_view name) {
  return {
      .name = name,
      .matmul = MatmulBody<W>::matmul,
      .matmul_wide = MatmulBody<W>::matmul_wide,
      .matmul_float = MatmulBody<W>::matmul_float,
      .unpack_row = MatmulBody<W>::unpack_row,
      .quantize_row = QuantizeBody<W>::quantize_row,
      .quantize_row_wide = QuantizeBody<W>::quantize_row_wide,
      .rms_norm = RowwiseBody<W>::rms_norm,
      .add = RowwiseBody<W>::add,
      .rope = RowwiseBody<W>::rope,
      .gated = RowwiseBody<W>::gated,
      .softcap = RowwiseBody<W>::softcap,
      .attention = {AttentionBody<W>::write_kv, AttentionBody<W>::attend, AttentionBody<W>::merge},
  };
}

// The same whose products of many rows use tile registers.
template <class W, class Tiles>
[[nodiscard]] constexpr KernelTable table_with_tiles(std::string_view name) {
  KernelTable table = table_of<W>(name);
  table.matmul = MatmulBody<W, Tiles>::matmul;
  return table;
}

}  // namespace quire
