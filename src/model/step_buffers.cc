#include "model/step_buffers.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "kernels/kernel_table.h"

namespace quire {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

int StepShape::in_max() const {
  return round_up(std::max({width, attention_width, ffn_width}), kGroup);
}

StepShape step_shape(const ModelSpec& spec) {
  StepShape shape{.width = spec.width, .vocab_size = spec.vocab_size};
  for (const LayerSpec& layer : spec.layers) {
    shape.query_width = std::max(shape.query_width, layer.heads * layer.head_dim);
    shape.key_width = std::max(shape.key_width, layer.kv_heads * layer.head_dim);
    shape.value_width = std::max(shape.value_width, layer.kv_heads * layer.value_dim);
    shape.attention_width = std::max(shape.attention_width, layer.heads * layer.value_dim);
    shape.ffn_width = std::max(shape.ffn_width, layer.ffn_width);
  }
  return shape;
}

// Hands out addresses in order; with a null base it only measures.
class StepBuffers::Layout {
 public:
  explicit Layout(std::byte* base) : base_(base) {}

  template <class T>
  void array(T*& pointer, size_t rows, size_t row_values) {
    auto values = checked_mul(rows, row_values);
    auto bytes = values ? checked_mul(*values, sizeof(T)) : values;
    auto end =
        bytes && *bytes <= kBytesMax ? checked_add(offset_, round_up(*bytes, kAlignment)) : std::nullopt;
    if (!end) {
      overflow_ = true;
      return;
    }
    if (base_ != nullptr) pointer = reinterpret_cast<T*>(base_ + offset_);
    offset_ = *end;
  }

  [[nodiscard]] size_t offset() const { return offset_; }
  void rewind(size_t offset) { offset_ = offset; }
  [[nodiscard]] bool overflow() const { return overflow_; }

 private:
  static constexpr size_t kBytesMax = std::numeric_limits<size_t>::max() / 2;
  std::byte* base_;
  size_t offset_ = 0;
  bool overflow_ = false;
};

void StepBuffers::place(Layout& layout) {
  const StepShape& s = shape_;
  auto rows = static_cast<size_t>(s.rows_max);
  auto in = static_cast<size_t>(s.in_max());
  auto place_rows = [&](RowBuffers& buffers, size_t count) {
    layout.array(buffers.hidden, count, s.width);
    layout.array(buffers.normed, count, s.width);
    layout.array(buffers.codes, 2 * count, in);
    layout.array(buffers.scales, 2 * count, in / kGroup);
    layout.array(buffers.sums, 2 * count, in / kGroup);
    layout.array(buffers.wide_codes, count, in);
    layout.array(buffers.wide_sums, count, in / kGroup);
  };
  place_rows(rows_, rows);
  size_t halves = layout.offset();
  layout.array(query, rows, s.query_width);
  layout.array(key, rows, s.key_width);
  layout.array(value, rows, s.value_width);
  layout.array(attention, rows, s.attention_width);
  size_t attention_end = layout.offset();
  layout.rewind(halves);
  layout.array(gate, rows, s.ffn_width);
  layout.array(up, rows, s.ffn_width);
  layout.rewind(std::max(attention_end, layout.offset()));
  layout.array(branch, rows, s.width);
  layout.array(cosines, rows, s.rope_half_dims);
  layout.array(sines, rows, s.rope_half_dims);
  layout.array(logits, s.logits_max, s.vocab_size);
  for (ThreadBuffers& buffers : threads_) {
    place_rows(buffers.rows, kPrivateRowsMax);
    layout.array(buffers.kernel_scratch, 1, matmul_scratch_bytes(s.in_max()));
  }
}

Result<StepBuffers> StepBuffers::create(const StepShape& shape) {
  StepBuffers buffers;
  buffers.shape_ = shape;
  buffers.threads_.resize(shape.threads);
  Layout measure(nullptr);
  buffers.place(measure);
  if (measure.overflow()) {
    return fail(ErrorCode::kResourceExhausted, "step_tokens_max",
                "buffers for {} rows and {} logit rows need more than 2^63 bytes", shape.rows_max,
                shape.logits_max);
  }
  buffers.arena_ = TRY(PageArena::reserve(measure.offset(), PageAdvice::kDefault, "the step buffers"));
  Layout layout(buffers.arena_.data());
  buffers.place(layout);
  return buffers;
}

}  // namespace quire
