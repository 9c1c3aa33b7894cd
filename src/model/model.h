// A loaded model: a StepPlan in, logits out.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "core/model_spec.h"
#include "core/step_plan.h"
#include "files/gguf_file.h"
#include "files/packed_cache.h"
#include "kernels/kernel_table.h"
#include "kv/kv_store.h"
#include "model/weights.h"

namespace quire {

enum class Arithmetic : uint8_t {
  kInt8Activations,  // the default: matrix products on int8 activations
  kFloat32,          // --exact: float32 activations everywhere
};

// Named intermediate values of one row, for tests against layer checkpoints: ("attn_norm", layer, row,
// values).
using ModelProbe =
    std::function<void(std::string_view name, int layer, int row, std::span<const float> values)>;

// How integers stand for a row of activations. Most of what int8 loses is in the few groups of 32 that hold
// an outlier: a second term is what the first lost, quantised again.
enum class ActivationCodes : uint8_t {
  kInt8,
  kInt8Outliers,  // a second term for groups that lose more than four times the row's mean
  kWide,          // 14 bits
};

// By the products that read them: what precision costs differs. The weights are read once in any case, so in
// decode of one sequence, which waits for memory, it costs little; where many rows compute, kWide takes about
// twice the time of kInt8.
struct ActivationPrecision {
  ActivationCodes attention_input = ActivationCodes::kInt8Outliers;  // of query, key and value
  ActivationCodes attention_output = ActivationCodes::kInt8Outliers;
  ActivationCodes ffn_input = ActivationCodes::kInt8Outliers;   // of gate and up
  ActivationCodes ffn_output = ActivationCodes::kInt8Outliers;  // of down
  ActivationCodes head = ActivationCodes::kWide;
};

struct ModelOptions {
  const KernelTable* kernels = nullptr;
  ThreadPool* pool = nullptr;  // outlives the model
  Arithmetic arithmetic = Arithmetic::kInt8Activations;
  ActivationPrecision precision = {};  // of kInt8Activations
  int step_tokens_max = 512;           // most rows of one step
  int step_logits_max = 512;           // most logit rows of one step
  PackedCacheOptions packed_cache = {};
};

// Owned by the engine; forward() by one thread at a time. Same tokens and positions give the same bits,
// whatever else is in the step.
class Model {
 public:
  // Packs the weights (all pool threads) and releases the file's pages, or maps them packed. Errors:
  // kUnsupported for an unknown architecture (named, with the known ones); kCorruptFile for a missing or
  // misshapen tensor (named, with shapes).
  static Result<std::unique_ptr<Model>> load(const GgufFile& file, const ModelOptions& options);
  ~Model();

  [[nodiscard]] const ModelSpec& spec() const;
  [[nodiscard]] uint64_t weight_bytes() const;
  [[nodiscard]] WeightOrigin weight_origin() const;
  [[nodiscard]] const std::string& weight_notice() const;  // Weights::notice()
  // What one decoded token reads of them: all but an embedding table that is not the head too.
  [[nodiscard]] uint64_t decode_weight_bytes() const;

  // Does now what the first step with a store of such types would do: some learn from the model itself.
  void prepare_for(const KvStore& kv);

  // Writes K and V of the plan's rows, returns the logits that it wants. The plan fits step_tokens_max.
  LogitsView forward(const StepPlan& plan, KvStore& kv);

  void set_probe(ModelProbe probe);  // tests only; costs nothing when unset

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads the hyper-parameters alone; for `info`.
[[nodiscard]] Result<ModelSpec> read_model_spec(const GgufFile& file);
// Names of the architectures that this build knows.
[[nodiscard]] std::span<const std::string_view> known_architectures();

}  // namespace quire
