#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "model/weight_names.h"

namespace quire {
namespace {

constexpr size_t kAlignment = 64;
// Bytes of a tensor that one thread packs in one go: enough to be one sequential read, and what stays in
// memory twice is at most one such piece a thread.
constexpr size_t kPieceBytes = size_t{1} << 20;

// One tensor's way from the file to the arena; exactly one of matrix and vector is set.
struct Placement {
  const GgufTensor* tensor = nullptr;
  size_t offset = 0;  // in the arena
  PackedMatrix* matrix = nullptr;
  const float** vector = nullptr;
};

// Panels [panel_begin, panel_end) of a matrix, or a whole vector.
struct Piece {
  const Placement* placement = nullptr;
  int panel_begin = 0;
  int panel_end = 0;
};

std::span<const std::byte> matrix_rows(const Placement& placement, int row_begin, int row_end) {
  const PackedMatrix& matrix = *placement.matrix;
  size_t row_bytes = placement.tensor->bytes.size() / static_cast<size_t>(matrix.out);
  row_end = std::min(row_end, matrix.out);
  return placement.tensor->bytes.subspan(static_cast<size_t>(row_begin) * row_bytes,
                                         static_cast<size_t>(row_end - row_begin) * row_bytes);
}

}  // namespace

// Places every tensor first, so that the arena is reserved once at its exact size; then packs.
class WeightLoader {
 public:
  WeightLoader(const GgufFile& file, const ModelSpec& spec) : file_(file), spec_(spec) {
    weights_.layers_.resize(spec.layers.size());
  }

  Result<Weights> load(ThreadPool& pool) {
    TRY(place_all());
    weights_.arena_ = TRY(PageArena::reserve(bytes_, PageAdvice::kHuge, "the weights"));
    point_into_arena();
    pack(pool);
    if (spec_.tied_embeddings) weights_.head_.matrix = weights_.embedding_;
    return std::move(weights_);
  }

 private:
  Result<> place_all() {
    ModelWeightNames names = model_weight_names(spec_);
    TRY(place_matrix(names.token_embedding, weights_.embedding_));
    TRY(place_vector(names.output_norm, weights_.final_norm_));
    for (int index = 0; index < static_cast<int>(spec_.layers.size()); ++index) {
      TRY(place_layer(layer_weight_names(spec_, index), weights_.layers_[index]));
    }
    if (!spec_.tied_embeddings) TRY(place_matrix(names.output, weights_.head_.matrix));
    return {};
  }

  Result<> place_layer(const LayerWeightNames& names, LayerWeights& layer) {
    TRY(place_vector(names.attention_norm, layer.attention_norm));
    TRY(place_matrix(names.query, layer.query.matrix));
    TRY(place_matrix(names.key, layer.key.matrix));
    TRY(place_matrix(names.value, layer.value.matrix));
    TRY(place_vector(names.query_bias, layer.query.bias));
    TRY(place_vector(names.key_bias, layer.key.bias));
    TRY(place_vector(names.value_bias, layer.value.bias));
    TRY(place_vector(names.query_norm, layer.query_norm));
    TRY(place_vector(names.key_norm, layer.key_norm));
    TRY(place_matrix(names.attention_output, layer.attention_output.matrix));
    TRY(place_vector(names.post_attention_norm, layer.post_attention_norm));
    TRY(place_vector(names.ffn_norm, layer.ffn_norm));
    TRY(place_matrix(names.ffn_gate, layer.gate.matrix));
    TRY(place_matrix(names.ffn_up, layer.up.matrix));
    TRY(place_matrix(names.ffn_down, layer.down.matrix));
    TRY(place_vector(names.post_ffn_norm, layer.post_ffn_norm));
    return {};
  }

  Result<size_t> reserve_bytes(const WeightName& name, size_t bytes) {
    size_t offset = bytes_;
    auto end = checked_add(offset, round_up(bytes, kAlignment));
    if (!end) {
      return fail(ErrorCode::kResourceExhausted, name.name, "{}: the weights need more than 2^64 bytes",
                  name.name);
    }
    bytes_ = *end;
    return offset;
  }

  Result<> place_matrix(const WeightName& name, PackedMatrix& matrix) {
    const GgufTensor* tensor = TRY(find_weight(file_, name));
    CHECK(tensor->shape.size() == 2);
    const TensorTypeInfo& info = tensor_type_info(tensor->type);
    constexpr int64_t kDimensionMax = std::numeric_limits<int>::max() - kPanelRows;
    for (int64_t dimension : tensor->shape) {
      if (dimension < 1 || dimension > kDimensionMax) {
        return fail(ErrorCode::kCorruptFile, name.name, "{} has a dimension of {}, limit is {}", name.name,
                    dimension, kDimensionMax);
      }
    }
    int out = static_cast<int>(tensor->shape[0]);
    int in = static_cast<int>(tensor->shape[1]);
    if (in % info.block_elements != 0) {
      return fail(ErrorCode::kCorruptFile, name.name, "{} has rows of {} values, not a multiple of {} ({})",
                  name.name, in, info.block_elements, info.name);
    }
    matrix = {
        .type = tensor->type, .out = out, .in = in, .panel_bytes = packed_panel_bytes(tensor->type, in)};
    auto bytes = checked_mul(static_cast<size_t>(matrix.panels()), matrix.panel_bytes);
    CHECK(bytes.has_value());
    size_t offset = TRY(reserve_bytes(name, *bytes));
    placements_.push_back({.tensor = tensor, .offset = offset, .matrix = &matrix});
    return {};
  }

  // A weight that the model lacks stays nullptr.
  Result<> place_vector(const WeightName& name, const float*& vector) {
    if (!name.present()) return {};
    const GgufTensor* tensor = TRY(find_weight(file_, name));
    size_t offset = TRY(reserve_bytes(name, static_cast<size_t>(tensor->elements()) * sizeof(float)));
    placements_.push_back({.tensor = tensor, .offset = offset, .vector = &vector});
    return {};
  }

  void point_into_arena() {
    for (const Placement& placement : placements_) {
      std::byte* data = weights_.arena_.data() + placement.offset;
      if (placement.matrix != nullptr) placement.matrix->data = data;
      if (placement.vector != nullptr) *placement.vector = reinterpret_cast<const float*>(data);
    }
  }

  [[nodiscard]] std::vector<Piece> cut_pieces() const {
    std::vector<Piece> pieces;
    for (const Placement& placement : placements_) {
      if (placement.vector != nullptr) {
        pieces.push_back({.placement = &placement});
        continue;
      }
      int panels = placement.matrix->panels();
      size_t panel_source = placement.tensor->bytes.size() / static_cast<size_t>(panels) + 1;
      int step = static_cast<int>(std::max<size_t>(1, kPieceBytes / panel_source));
      for (int panel = 0; panel < panels; panel += step) {
        pieces.push_back({&placement, panel, std::min(panels, panel + step)});
      }
    }
    return pieces;
  }

  void pack(ThreadPool& pool) {
    std::vector<Piece> pieces = cut_pieces();
    std::atomic<size_t> next = 0;
    pool.run([&](int) {
      for (size_t index = next.fetch_add(1); index < pieces.size(); index = next.fetch_add(1)) {
        pack_piece(pieces[index]);
      }
    });
    // Pages on the border of two pieces belong to neither and are still there.
    for (const Placement& placement : placements_) file_.release(*placement.tensor);
  }

  void pack_piece(const Piece& piece) const {
    const Placement& placement = *piece.placement;
    const GgufTensor& tensor = *placement.tensor;
    std::byte* destination = weights_.arena_.data() + placement.offset;
    if (placement.vector != nullptr) {
      dequantize_row(tensor.type, tensor.bytes,
                     {reinterpret_cast<float*>(destination), static_cast<size_t>(tensor.elements())});
      return;
    }
    const PackedMatrix& matrix = *placement.matrix;
    pack_panels(matrix.type, matrix.out, matrix.in, tensor.bytes, piece.panel_begin, piece.panel_end,
                destination);
    GgufTensor done = tensor;
    done.bytes = matrix_rows(placement, piece.panel_begin * kPanelRows, piece.panel_end * kPanelRows);
    file_.release(done);
  }

  const GgufFile& file_;
  const ModelSpec& spec_;
  Weights weights_;
  std::vector<Placement> placements_;
  size_t bytes_ = 0;
};

Result<Weights> Weights::load(const GgufFile& file, const ModelSpec& spec, ThreadPool& pool) {
  return WeightLoader(file, spec).load(pool);
}

}  // namespace quire
