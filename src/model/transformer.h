// The generic decoder-only transformer: executes any ModelSpec, many sequences a step.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "base/work_claims.h"
#include "core/model_spec.h"
#include "core/step_plan.h"
#include "kernels/kernel_table.h"
#include "kernels/key_bias.h"
#include "kv/kv_store.h"
#include "model/activation_rows.h"
#include "model/key_profile.h"
#include "model/model.h"
#include "model/page_arena.h"
#include "model/rope_table.h"
#include "model/step_buffers.h"
#include "model/weights.h"

namespace quire {

// Layers that share one plan of attention work: the same layer group and the same query heads.
struct AttentionKind {
  int group = 0;
  int heads = 0;
  int kv_heads = 0;
  int value_dim = 0;
  int window = 0;
};

// The forms of a layer's products, by the types of its weights.
struct LayerForms {
  ActivationForm query, key, value, attention_output, gate, up, down;
};

// Everything that is the same for all steps. Immutable but for the buffers and what is learnt once.
struct TransformerParts {
  const ModelSpec& spec;
  const Weights& weights;
  const KernelTable& kernels;
  ThreadPool& pool;
  RopeTable rope;
  StepBuffers buffers;
  std::vector<LayerForms> forms;  // [layer]
  ActivationForm head_form = ActivationForm::kInt8;
  std::vector<AttentionKind> kinds;  // of attention work
  std::vector<int> kind_of_layer;    // [layer]
  // For types of KV that keep the mean of K apart: learnt at the first step that has such a type, empty
  // before.
  std::vector<KeyProfile> key_profiles;                              // [layer]
  std::vector<std::shared_ptr<const KeyBiasTable>> key_bias_tables;  // [layer]
};

// Whose queries a plan of attention work answers.
enum class AttentionRows : uint8_t { kAll, kLogitsOnly };

// Whether the codes of K leave its mean out. int8 and fp8 have room for it, but for the biases of K that
// Qwen2 has.
[[nodiscard]] bool keeps_key_mean_apart(const LayerWeights& weights, KvType type);
// Whether K is stored times the gains of its profile.
[[nodiscard]] constexpr bool has_key_gains(KvType type) {
  return type == KvType::kInt4;
}

struct StepRow {
  int sequence = 0;
  TokenId token = 0;
  Position position = 0;
};

// One step, as all threads see it: prepared by the calling thread, read-only in the pool.
struct Step {
  const StepPlan* plan = nullptr;
  KvStore* kv = nullptr;
  const ModelProbe* probe = nullptr;  // nullptr = none
  KeyRecord* key_record = nullptr;    // nullptr = none
  std::vector<StepRow> rows;
  std::vector<int> logit_rows;           // rows that want logits, ascending
  std::vector<AttentionPlan> attention;  // [kind]
  AttentionPlan last_attention;          // of the last layer: only rows that want logits ask there
  float* partials = nullptr;             // scratch of the attention kernels
  // Of the job that runs and of the next one, in turn.
  std::array<WorkClaims, 2>* claims = nullptr;
};

// Owned by Model; forward() by one thread at a time.
class Transformer {
 public:
  // spec and weights outlive the transformer. Errors: kResourceExhausted.
  static Result<std::unique_ptr<Transformer>> create(const ModelSpec& spec, const Weights& weights,
                                                     const ModelOptions& options);

  // As in Model.
  void prepare_for(const KvStore& kv);
  LogitsView forward(const StepPlan& plan, KvStore& kv, const ModelProbe& probe);

 private:
  explicit Transformer(TransformerParts parts);
  // Runs the model over a fixed run of tokens, with a KV store of its own.
  void learn_key_profiles();
  LogitsView run(const StepPlan& plan, KvStore& kv);
  void prepare(const StepPlan& plan, KvStore& kv);
  void plan_attention_work();
  [[nodiscard]] AttentionPlan plan_rows(const AttentionKind& kind, AttentionRows rows) const;
  void reserve_partials();

  TransformerParts parts_;
  Step step_;
  PageArena partials_;
  std::array<WorkClaims, 2> claims_;
};

}  // namespace quire
