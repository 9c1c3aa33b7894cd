#include "model/weights.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "model/weight_names.h"
#include "model/weight_packer.h"

namespace quire {
namespace {

// The age from which on a file's stamp stands for its contents: a change within the clock's tick of the last
// one need not show. File systems tick up to every 2 seconds.
constexpr auto kSettled = std::chrono::seconds(3);

// Stands for the state of the model file; zeros when that may not be relied on yet.
ContentHash state_of(const GgufFile& file) {
  using std::chrono::nanoseconds;
  const std::vector<FileStamp> stamps = file.stamps();
  const nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  for (const FileStamp& stamp : stamps) {
    if (nanoseconds(std::max(stamp.changed_ns, stamp.modified_ns)) > now - kSettled) return {};
  }
  return content_hash(std::as_bytes(std::span(stamps)));
}

}  // namespace

// Places every tensor first, so that all of them take one run of bytes of known size; then finds or packs it.
class WeightLoader {
 public:
  WeightLoader(const GgufFile& file, const ModelSpec& spec) : file_(file), spec_(spec) {
    weights_.layers_.resize(spec.layers.size());
  }

  Result<Weights> load(ThreadPool& pool, const PackedCacheOptions& cache) {
    TRY(place_all());
    const WeightPacker packer(file_, placements_, pool);
    if (cache.folder.empty() || file_.stamps().empty()) {
      TRY(pack_into_memory(packer));
    } else if (auto mapped = map_from_cache(packer, PackedCache(cache)); !mapped) {
      add_notice(mapped.error().message + "; the weights are packed in memory");
      TRY(pack_into_memory(packer));
    }
    weights_.bytes_ = bytes_;
    if (spec_.tied_embeddings) weights_.head_.matrix = weights_.embedding_;
    return std::move(weights_);
  }

 private:
  Result<> pack_into_memory(const WeightPacker& packer) {
    weights_.arena_ = TRY(PageArena::reserve(bytes_, PageAdvice::kHuge, "the weights"));
    packer.pack(weights_.arena_.data());
    point_into(weights_.arena_.data());
    return {};
  }

  Result<> map_from_cache(const WeightPacker& packer, const PackedCache& cache) {
    const PackedPlan plan = packer.plan();
    const ContentHash state = state_of(file_);
    find_current(packer, cache.find(plan), state);
    if (!weights_.file_) {
      weights_.file_ = TRY(packer.pack(TRY(cache.begin(plan)), state));
      weights_.origin_ = WeightOrigin::kNewFile;
    }
    point_into(weights_.file_->data().data());
    return {};
  }

  // Takes the file if it came from what the model file holds now; else it is closed, so that it can make
  // room.
  void find_current(const WeightPacker& packer, Result<PackedFile> found, const ContentHash& state) {
    if (found && is_current(*found, packer, state)) {
      found->touch();
      weights_.origin_ = WeightOrigin::kFile;
      weights_.file_ = std::move(*found);
    } else if (found) {
      add_notice(found->path() + " was packed from other contents, it is packed anew");
    } else if (found.error().code != ErrorCode::kNotFound) {
      add_notice(found.error().message + ", it is packed anew");
    }
  }

  // Whether the packed file came from what the model file holds now.
  static bool is_current(const PackedFile& packed, const WeightPacker& packer, const ContentHash& state) {
    if (packed.has_seen(state)) return true;
    if (packer.source_hash() != packed.header().source_hash) return false;
    if (state != ContentHash{}) packed.remember(state);
    return true;
  }

  void add_notice(std::string text) {
    if (!weights_.notice_.empty()) weights_.notice_ += "; ";
    weights_.notice_ += text;
  }

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
    auto end = checked_add(offset, round_up(bytes, kWeightAlignment));
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

  void point_into(const std::byte* packed) {
    for (const WeightPlacement& placement : placements_) {
      const std::byte* data = packed + placement.offset;
      if (placement.matrix != nullptr) placement.matrix->data = data;
      if (placement.vector != nullptr) *placement.vector = reinterpret_cast<const float*>(data);
    }
  }

  const GgufFile& file_;
  const ModelSpec& spec_;
  Weights weights_;
  std::vector<WeightPlacement> placements_;
  size_t bytes_ = 0;
};

Result<Weights> Weights::load(const GgufFile& file, const ModelSpec& spec, ThreadPool& pool,
                              const PackedCacheOptions& cache) {
  return WeightLoader(file, spec).load(pool, cache);
}

}  // namespace quire
