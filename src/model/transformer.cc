#include "model/transformer.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "model/transformer_step.h"

namespace quire {
namespace {

ActivationForm form_of(const Projection& projection, const ModelOptions& options, ActivationCodes codes) {
  if (!has_codes(projection.matrix.type) || options.arithmetic == Arithmetic::kFloat32) {
    return ActivationForm::kFloat;
  }
  switch (codes) {
    case ActivationCodes::kInt8:
      return ActivationForm::kInt8;
    case ActivationCodes::kInt8Outliers:
      return ActivationForm::kInt8Outliers;
    case ActivationCodes::kWide:
      return ActivationForm::kWide;
  }
  UNREACHABLE();
}

std::vector<LayerForms> layer_forms(const ModelSpec& spec, const Weights& weights,
                                    const ModelOptions& options) {
  const ActivationPrecision& precision = options.precision;
  std::vector<LayerForms> forms;
  for (size_t index = 0; index < spec.layers.size(); ++index) {
    const LayerWeights& layer = weights.layer(static_cast<int>(index));
    forms.push_back({
        .query = form_of(layer.query, options, precision.attention_input),
        .key = form_of(layer.key, options, precision.attention_input),
        .value = form_of(layer.value, options, precision.attention_input),
        .attention_output = form_of(layer.attention_output, options, precision.attention_output),
        .gate = form_of(layer.gate, options, precision.ffn_input),
        .up = form_of(layer.up, options, precision.ffn_input),
        .down = form_of(layer.down, options, precision.ffn_output),
    });
  }
  return forms;
}

// Fills kinds and kind_of_layer.
void sort_attention_kinds(TransformerParts& parts) {
  KvGeometry geometry = parts.spec.kv_geometry(KvType::kF32);
  parts.kind_of_layer.resize(parts.spec.layers.size());
  for (size_t group = 0; group < geometry.groups.size(); ++group) {
    for (int index : geometry.groups[group].layers) {
      const LayerSpec& layer = parts.spec.layers[index];
      auto same = std::ranges::find_if(parts.kinds, [&](const AttentionKind& kind) {
        return kind.group == static_cast<int>(group) && kind.heads == layer.heads;
      });
      if (same == parts.kinds.end()) {
        parts.kinds.push_back({.group = static_cast<int>(group),
                               .heads = layer.heads,
                               .kv_heads = layer.kv_heads,
                               .value_dim = layer.value_dim,
                               .window = layer.window});
        same = std::prev(parts.kinds.end());
      }
      parts.kind_of_layer[index] = static_cast<int>(same - parts.kinds.begin());
    }
  }
}

// One for all layers that rotate in the same way.
std::vector<std::shared_ptr<const KeyBiasTable>> make_key_bias_tables(const TransformerParts& parts) {
  const ModelSpec& spec = parts.spec;
  // Whatever a file claims: later spans are computed when they are needed.
  const int spans = std::min(ceil_div(spec.context_length, kSpanTokens), 4096);
  std::vector<std::shared_ptr<const KeyBiasTable>> tables;
  for (size_t index = 0; index < spec.layers.size(); ++index) {
    const RopeFrequencies& rotation = parts.rope.rotation(static_cast<int>(index));
    const int key_dim = spec.layers[index].head_dim;
    auto same = std::ranges::find_if(tables, [&](const auto& table) {
      return table->key_dim == key_dim && table->rope.pairing == rotation.pairing &&
             table->rope.frequencies == rotation.frequencies;
    });
    if (same != tables.end()) {
      tables.push_back(*same);
    } else {
      tables.push_back(std::make_shared<const KeyBiasTable>(make_key_bias_table(rotation, key_dim, spans)));
    }
  }
  return tables;
}

}  // namespace

Result<std::unique_ptr<Transformer>> Transformer::create(const ModelSpec& spec, const Weights& weights,
                                                         const ModelOptions& options) {
  RopeTable rope(spec);
  StepShape shape = step_shape(spec);
  shape.rows_max = options.step_tokens_max;
  shape.logits_max = options.step_logits_max;
  shape.threads = options.pool->size();
  shape.rope_half_dims = rope.half_dims();
  TransformerParts parts {
    .spec = spec, .weights = weights, .kernels = *options.kernels, .pool = *options.pool,
    .rope = std::move(rope), .buffers = TRY(StepBuffers::create(shape))
    , .forms = layer_forms(spec, weights, options),
        .head_form = form_of(weights.head(), options, options.precision.head), .kinds = {},
        .kind_of_layer = {}, .key_profiles = {}, .key_bias_tables = {}
  };
  sort_attention_kinds(parts);
  return std::unique_ptr<Transformer>(new Transformer(std::move(parts)));
}

bool keeps_key_mean_apart(const LayerWeights& weights, KvType type) {
  if (has_key_gains(type)) return true;
  // A bias that is normed with the rest of K is not the same for all tokens.
  return kv_has_scales(type) && weights.key.bias != nullptr && weights.key_norm == nullptr;
}

void Transformer::prepare_for(const KvStore& kv) {
  if (!parts_.key_profiles.empty()) return;
  for (int layer = 0; layer < static_cast<int>(parts_.spec.layers.size()); ++layer) {
    if (!keeps_key_mean_apart(parts_.weights.layer(layer), kv.layer(layer).type)) continue;
    learn_key_profiles();
    return;
  }
}

LogitsView Transformer::forward(const StepPlan& plan, KvStore& kv, const ModelProbe& probe) {
  prepare_for(kv);
  step_.probe = probe ? &probe : nullptr;
  return run(plan, kv);
}

void Transformer::learn_key_profiles() {
  const std::vector<TokenId> ids = profile_tokens(parts_.spec);
  const KvGeometry geometry = parts_.spec.kv_geometry(KvType::kF16);
  const int count = ceil_div(static_cast<int>(ids.size()), geometry.block_tokens);
  auto kv = KvStore::create(geometry, std::vector<int>(geometry.groups.size(), count));
  CHECK(kv.has_value());
  std::vector<BlockId> blocks;
  for (int block = 0; block < count; ++block) blocks.push_back(BlockId{block});
  KeyRecord record(parts_.spec, static_cast<int>(ids.size()));
  step_.probe = nullptr;
  step_.key_record = &record;
  const auto chunk = static_cast<size_t>(parts_.buffers.shape().rows_max);
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const auto tokens = std::span(ids).subspan(begin, std::min(chunk, ids.size() - begin));
    PlannedSequence sequence{.seq = {},
                             .first_position = static_cast<Position>(begin),
                             .tokens = tokens,
                             .logits_from = static_cast<int>(tokens.size())};
    sequence.block_table.fill(blocks);
    run({.sequences = {sequence}}, **kv);
  }
  step_.key_record = nullptr;
  parts_.key_profiles = record.profiles();
  parts_.key_bias_tables = make_key_bias_tables(parts_);
}

LogitsView Transformer::run(const StepPlan& plan, KvStore& kv) {
  prepare(plan, kv);
  const StepBuffers& buffers = parts_.buffers;
  if (!step_.rows.empty()) {
    parts_.pool.run([&](int thread) { StepMember(parts_, step_, thread).run(); });
  }
  size_t values = step_.logit_rows.size() * static_cast<size_t>(parts_.spec.vocab_size);
  return {.values = {buffers.logits, values}, .vocab_size = parts_.spec.vocab_size};
}

void Transformer::prepare(const StepPlan& plan, KvStore& kv) {
  step_.plan = &plan;
  step_.kv = &kv;
  step_.rows.clear();
  step_.logit_rows.clear();
  for (size_t index = 0; index < plan.sequences.size(); ++index) {
    const PlannedSequence& sequence = plan.sequences[index];
    auto tokens = static_cast<int>(sequence.tokens.size());
    CHECK(sequence.first_position >= 0 && sequence.logits_from >= 0 && sequence.logits_from <= tokens);
    for (int i = 0; i < tokens; ++i) {
      CHECK(sequence.tokens[i] >= 0 && sequence.tokens[i] < parts_.spec.vocab_size);
      if (i >= sequence.logits_from) step_.logit_rows.push_back(static_cast<int>(step_.rows.size()));
      step_.rows.push_back({.sequence = static_cast<int>(index),
                            .token = sequence.tokens[i],
                            .position = sequence.first_position + i});
    }
  }
  CHECK(step_.rows.size() <= static_cast<size_t>(parts_.buffers.shape().rows_max));
  CHECK(step_.logit_rows.size() <= static_cast<size_t>(parts_.buffers.shape().logits_max));
  plan_attention_work();
  reserve_partials();
  for (WorkClaims& claims : claims_) {
    for (int member = 0; member < parts_.pool.size(); ++member) claims.reset(member);
  }
}

void Transformer::plan_attention_work() {
  step_.attention.clear();
  for (const AttentionKind& kind : parts_.kinds) {
    step_.attention.push_back(plan_rows(kind, AttentionRows::kAll));
  }
  step_.last_attention = plan_rows(parts_.kinds[parts_.kind_of_layer.back()], AttentionRows::kLogitsOnly);
}

AttentionPlan Transformer::plan_rows(const AttentionKind& kind, AttentionRows rows) const {
  std::vector<AttentionSequence> sequences;
  int row = 0;
  for (const PlannedSequence& planned : step_.plan->sequences) {
    auto tokens = static_cast<int>(planned.tokens.size());
    int from = rows == AttentionRows::kAll ? 0 : planned.logits_from;
    if (from < tokens) {
      sequences.push_back({.blocks = planned.block_table[kind.group],
                           .first_position = planned.first_position + from,
                           .rows = tokens - from,
                           .row_begin = row + from});
    }
    row += tokens;
  }
  return plan_attention(std::move(sequences), {.heads = kind.heads,
                                               .kv_heads = kind.kv_heads,
                                               .window = kind.window,
                                               .threads = parts_.pool.size(),
                                               .block_tokens = step_.kv->geometry().block_tokens});
}

// Grows in steps of two, so that a long answer does not map memory at every token.
void Transformer::reserve_partials() {
  size_t bytes =
      sizeof(float) *
      attention_partial_floats(step_.last_attention, parts_.kinds[parts_.kind_of_layer.back()].value_dim);
  for (size_t index = 0; index < step_.attention.size(); ++index) {
    bytes = std::max(bytes, sizeof(float) * attention_partial_floats(step_.attention[index],
                                                                     parts_.kinds[index].value_dim));
  }
  if (bytes > partials_.size()) {
    auto grown =
        PageArena::reserve(std::max(bytes, 2 * partials_.size()), PageAdvice::kDefault, "attention partials");
    CHECK(grown.has_value());
    partials_ = std::move(*grown);
  }
  step_.partials = reinterpret_cast<float*>(partials_.data());
}

Transformer::Transformer(TransformerParts parts)
    : parts_(std::move(parts)), claims_{WorkClaims(parts_.pool.size()), WorkClaims(parts_.pool.size())} {
  step_.claims = &claims_;
}

}  // namespace quire
