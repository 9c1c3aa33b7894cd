// The memory in which one step's rows are computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/page_arena.h"
#include "model/product.h"

namespace quire {

// Steps of at most this many rows are "private": every thread computes their row-wise parts (norm,
// quantisation, residual) for itself, into its own RowBuffers, rather than wait for the others at a barrier.
inline constexpr int kPrivateRowsMax = 1;

// The widest arrays that any layer of a model needs, in values per row.
struct StepShape {
  int rows_max = 0;
  int logits_max = 0;
  int threads = 0;
  int width = 0;
  int query_width = 0;      // heads * head_dim
  int key_width = 0;        // kv_heads * head_dim
  int value_width = 0;      // kv_heads * value_dim
  int attention_width = 0;  // heads * value_dim
  int ffn_width = 0;
  int vocab_size = 0;
  int rope_half_dims = 0;  // sum of dims / 2 over the distinct rotations

  // The widest input of any product.
  [[nodiscard]] int in_max() const;
};

[[nodiscard]] StepShape step_shape(const ModelSpec& spec);

// Row-wise state: of one thread (private steps) or of the step.
struct RowBuffers {
  float* hidden = nullptr;        // [row, width]: the residual stream
  float* normed = nullptr;        // [row, width]
  int8_t* codes = nullptr;        // [2 * row, in_max]
  float* scales = nullptr;        // [2 * row, in_max / 32]
  GroupSums* sums = nullptr;      // [2 * row, in_max / 32]
  int16_t* wide_codes = nullptr;  // [row, in_max]
  WideSums* wide_sums = nullptr;  // [row, in_max / 32]
};

// What one thread alone uses.
struct ThreadBuffers {
  RowBuffers rows;                      // kPrivateRowsMax rows
  std::byte* kernel_scratch = nullptr;  // matmul_scratch_bytes(in_max)
};

// Allocated once for the largest step and touched as steps need it. Owned by the transformer.
// Invariants: (1) every array is 64-byte aligned; (2) query, key, value and attention share their memory with
// gate and up: between the two halves of a layer lies a barrier.
class StepBuffers {
 public:
  static Result<StepBuffers> create(const StepShape& shape);

  [[nodiscard]] const StepShape& shape() const { return shape_; }
  [[nodiscard]] const RowBuffers& rows() const { return rows_; }
  [[nodiscard]] const ThreadBuffers& thread(int index) const { return threads_[index]; }

  float* query = nullptr;      // [row, query_width]
  float* key = nullptr;        // [row, key_width]
  float* value = nullptr;      // [row, value_width]
  float* attention = nullptr;  // [row, attention_width]
  float* gate = nullptr;       // [row, ffn_width]
  float* up = nullptr;         // [row, ffn_width]
  float* branch = nullptr;     // [row, width]: what a half layer adds to the residual stream
  float* logits = nullptr;     // [logit row, vocab]
  float* cosines = nullptr;    // [row, rope_half_dims]
  float* sines = nullptr;      // [row, rope_half_dims]

 private:
  class Layout;
  void place(Layout& layout);

  StepShape shape_;
  PageArena arena_;
  RowBuffers rows_;
  std::vector<ThreadBuffers> threads_;
};

}  // namespace quire
