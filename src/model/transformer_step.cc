#include "model/transformer_step.h"

#include <algorithm>
#include <array>

namespace quire {
namespace {

// A part is taken in about so many pieces.
constexpr int64_t kPieces = 8;
// Members that one looks at for work, itself among them: looking costs a cache miss each.
constexpr int kHelpedMembers = 4;

template <class T>
T* row_of(T* values, int row, int n) {
  return values + static_cast<size_t>(row) * static_cast<size_t>(n);
}

}  // namespace

StepMember::StepMember(const TransformerParts& parts, const Step& step, int thread)
    : parts_(parts),
      step_(step),
      spec_(parts.spec),
      kernels_(parts.kernels),
      buffers_(parts.buffers),
      own_(parts.buffers.thread(thread)),
      thread_(thread),
      private_(step.rows.size() <= kPrivateRowsMax),
      rows_(private_ ? own_.rows : parts.buffers.rows()),
      row_count_(static_cast<int>(step.rows.size())),
      my_rows_(row_share(row_count_)) {}

void StepMember::run() {
  embed();
  for (int layer = 0; layer < static_cast<int>(spec_.layers.size()); ++layer) {
    attention_half(layer);
    if (row_count_ == 0) return;
    ffn_half(layer);
    probe("hidden", layer, rows_.hidden, spec_.width);
  }
  head();
}

void StepMember::embed() {
  for (auto row = static_cast<int>(my_rows_.begin); row < my_rows_.end; ++row) {
    float* hidden = row_of(rows_.hidden, row, spec_.width);
    kernels_.unpack_row(parts_.weights.embedding(), step_.rows[row].token, hidden);
    if (spec_.embedding_scale == 1.0f) continue;
    for (int i = 0; i < spec_.width; ++i) hidden[i] *= spec_.embedding_scale;
  }
  // The angles are read after the first barrier.
  Share share = share_of(row_count_, thread_, parts_.pool.size());
  int half_dims = parts_.rope.half_dims();
  for (auto row = static_cast<int>(share.begin); row < share.end; ++row) {
    parts_.rope.fill_row(step_.rows[row].position, row_of(buffers_.cosines, row, half_dims),
                         row_of(buffers_.sines, row, half_dims));
  }
  probe("embedding", 0, rows_.hidden, spec_.width);
}

void StepMember::attention_half(int layer) {
  const LayerSpec& spec = spec_.layers[layer];
  const LayerWeights& weights = parts_.weights.layer(layer);
  const LayerForms& forms = parts_.forms[layer];
  norm_rows(weights.attention_norm, std::max({forms.query, forms.key, forms.value}));
  probe("attn_norm", layer, rows_.normed, spec_.width);

  auto target = [](float* values, int width) { return ProductRows{values, static_cast<size_t>(width)}; };
  std::array<Product, 3> products = {{
      {&weights.query, forms.query, target(buffers_.query, spec.heads * spec.head_dim)},
      {&weights.key, forms.key, target(buffers_.key, spec.kv_heads * spec.head_dim)},
      {&weights.value, forms.value, target(buffers_.value, spec.kv_heads * spec.value_dim)},
  }};
  multiply_shared(products, normed_rows());
  meet();
  probe("q_before_rope", layer, buffers_.query, spec.heads * spec.head_dim);

  rotate_and_store(layer);
  meet();
  probe("k_after_rope", layer, buffers_.key, spec.kv_heads * spec.head_dim);
  probe("v", layer, buffers_.value, spec.kv_heads * spec.value_dim);

  if (is_last(layer) && step_.logit_rows.empty()) {
    row_count_ = 0;
    return;
  }
  attend(layer);
  if (is_last(layer)) keep_logit_rows(layer);
  ActivationRows attended = activation(buffers_.attention, spec.heads * spec.value_dim, row_count_);
  quantize_rows(attended, forms.attention_output);
  std::array<Product, 1> output = {
      {{&weights.attention_output, forms.attention_output, target(buffers_.branch, spec_.width)}}};
  multiply_shared(output, attended);
  meet();
  probe("attn_out", layer, buffers_.branch, spec_.width);
  add_branch(weights.post_attention_norm);
}

// Work is cut by (row, head): query heads first, then KV heads.
void StepMember::rotate_and_store(int layer) {
  const LayerSpec& spec = spec_.layers[layer];
  int heads = spec.heads + spec.kv_heads;
  Share share = share_of(static_cast<int64_t>(row_count_) * heads, thread_, parts_.pool.size());
  for (int64_t item = share.begin; item < share.end; ++item) {
    auto row = static_cast<int>(item / heads);
    auto head = static_cast<int>(item % heads);
    if (head < spec.heads) {
      rotate_query(layer, row, head);
    } else {
      store_key_value(layer, row, head - spec.heads);
    }
  }
}

void StepMember::rotate_head(int layer, int row, const float* norm, float* values) {
  const LayerSpec& spec = spec_.layers[layer];
  if (norm != nullptr) kernels_.rms_norm(values, norm, spec_.norm_epsilon, spec.head_dim, values);
  if (spec.rope.dims == 0) return;
  int angles = parts_.rope.offset(layer);
  int half_dims = parts_.rope.half_dims();
  kernels_.rope(spec.rope.pairing, spec.rope.dims, row_of(buffers_.cosines, row, half_dims) + angles,
                row_of(buffers_.sines, row, half_dims) + angles, values);
}

void StepMember::rotate_query(int layer, int row, int head) {
  const LayerSpec& spec = spec_.layers[layer];
  float* query = row_of(buffers_.query, row, spec.heads * spec.head_dim) + head * spec.head_dim;
  const float* norm = parts_.weights.layer(layer).query_norm;
  if (step_.key_record != nullptr) {
    record_head(layer, norm, query, step_.key_record->query(layer, step_.rows[row].position, head));
  }
  rotate_head(layer, row, norm, query);
  if (!has_key_gains(step_.kv->layer(layer).type)) return;
  const int kv_head = head / (spec.heads / spec.kv_heads);
  const float* inverse = parts_.key_profiles[layer].inverse_gain.data() + kv_head * spec.head_dim;
  for (int d = 0; d < spec.head_dim; ++d) query[d] *= inverse[d];
}

void StepMember::store_key_value(int layer, int row, int kv_head) {
  const LayerSpec& spec = spec_.layers[layer];
  float* key = row_of(buffers_.key, row, spec.kv_heads * spec.head_dim) + kv_head * spec.head_dim;
  const float* value = row_of(buffers_.value, row, spec.kv_heads * spec.value_dim) + kv_head * spec.value_dim;
  const StepRow& at = step_.rows[row];
  const float* norm = parts_.weights.layer(layer).key_norm;
  if (step_.key_record != nullptr) {
    record_head(layer, norm, key, step_.key_record->key(layer, at.position, kv_head));
  }
  rotate_head(layer, row, norm, key);

  const KvLayerView& view = step_.kv->layer(layer);
  if (has_key_gains(view.type)) {
    const float* gain = parts_.key_profiles[layer].gain.data() + kv_head * spec.head_dim;
    for (int d = 0; d < spec.head_dim; ++d) key[d] *= gain[d];
  }
  if (keeps_key_mean_apart(parts_.weights.layer(layer), view.type)) {
    int half_dims = parts_.rope.half_dims();
    int angles = parts_.rope.offset(layer);
    subtract_key_bias(*parts_.key_bias_tables[layer], stored_key_mean(layer) + kv_head * spec.head_dim,
                      row_of(buffers_.cosines, row, half_dims) + angles,
                      row_of(buffers_.sines, row, half_dims) + angles, key);
  }
  int group = step_.kv->group_of_layer(layer);
  BlockId block = step_.plan->sequences[at.sequence].block_table[group][at.position / view.block_tokens];
  kernels_.attention.write_kv(view, block, at.position % view.block_tokens, kv_head, key, value);
}

void StepMember::record_head(int layer, const float* norm, const float* values, float* to) {
  const int dims = spec_.layers[layer].head_dim;
  if (norm != nullptr) {
    kernels_.rms_norm(values, norm, spec_.norm_epsilon, dims, to);
  } else {
    std::copy_n(values, dims, to);
  }
}

const float* StepMember::stored_key_mean(int layer) const {
  const KeyProfile& profile = parts_.key_profiles[layer];
  return has_key_gains(step_.kv->layer(layer).type) ? profile.gained_mean.data() : profile.mean.data();
}

void StepMember::attend(int layer) {
  const LayerSpec& spec = spec_.layers[layer];
  const AttentionPlan& plan =
      is_last(layer) ? step_.last_attention : step_.attention[parts_.kind_of_layer[layer]];
  AttentionLayer attention{.kv = step_.kv->layer(layer),
                           .heads = spec.heads,
                           .window = spec.window,
                           .score_scale = spec.score_scale};
  if (keeps_key_mean_apart(parts_.weights.layer(layer), attention.kv.type)) {
    attention.key_bias = stored_key_mean(layer);
    attention.key_bias_table = parts_.key_bias_tables[layer].get();
  }
  AttentionBuffers buffers{.q = buffers_.query,
                           .q_stride = static_cast<size_t>(spec.heads * spec.head_dim),
                           .out = buffers_.attention,
                           .out_stride = static_cast<size_t>(spec.heads * spec.value_dim),
                           .partials = step_.partials};
  share_work([&](int member) { return std::ssize(plan.items[member]); }, 1,
             [&](int member, Share piece) {
               kernels_.attention.attend(attention, plan, plan.items[member][piece.begin], buffers);
             });
  meet();
  if (plan.partial_slots == 0) return;
  for (const AttentionItem& item : plan.merges[thread_]) {
    kernels_.attention.merge(attention, plan, item, buffers);
  }
  meet();
}

void StepMember::keep_logit_rows(int layer) {
  auto count = static_cast<int>(step_.logit_rows.size());
  if (count == row_count_) return;
  if (thread_ == 0) {
    int attention_width = spec_.layers[layer].heads * spec_.layers[layer].value_dim;
    // Ascending, and never to a later row: what is overwritten has been moved before.
    for (int index = 0; index < count; ++index) {
      int row = step_.logit_rows[index];
      std::copy_n(row_of(rows_.hidden, row, spec_.width), spec_.width,
                  row_of(rows_.hidden, index, spec_.width));
      std::copy_n(row_of(buffers_.attention, row, attention_width), attention_width,
                  row_of(buffers_.attention, index, attention_width));
    }
  }
  row_count_ = count;
  my_rows_ = row_share(count);
  only_logit_rows_ = true;
  meet();
}

void StepMember::ffn_half(int layer) {
  const LayerSpec& spec = spec_.layers[layer];
  const LayerWeights& weights = parts_.weights.layer(layer);
  const LayerForms& forms = parts_.forms[layer];
  norm_rows(weights.ffn_norm, std::max(forms.gate, forms.up));
  gate_and_up(layer, normed_rows());
  meet();

  ActivationRows gated = activation(buffers_.gate, spec.ffn_width, row_count_);
  quantize_rows(gated, forms.down);
  std::array<Product, 1> down = {
      {{&weights.down, forms.down, {buffers_.branch, static_cast<size_t>(spec_.width)}}}};
  multiply_shared(down, gated);
  meet();
  probe("mlp_out", layer, buffers_.branch, spec_.width);
  add_branch(weights.post_ffn_norm);
}

// Both products and the activation tile by tile: the activation reads what is still in the cache, and needs
// no barrier, because whoever takes a piece computes the same outputs of both.
void StepMember::gate_and_up(int layer, const ActivationRows& x) {
  const LayerSpec& spec = spec_.layers[layer];
  const LayerWeights& weights = parts_.weights.layer(layer);
  auto stride = static_cast<size_t>(spec.ffn_width);
  Product gate{&weights.gate, parts_.forms[layer].gate, {buffers_.gate, stride}};
  Product up{&weights.up, parts_.forms[layer].up, {buffers_.up, stride}};
  const auto panels_of = [&](int member) {
    return share_of(weights.gate.matrix.panels(), member, parts_.pool.size());
  };
  share_work(
      [&](int member) { return panels_of(member).end - panels_of(member).begin; }, panel_tile(row_count_),
      [&](int member, Share piece) {
        const auto begin = static_cast<int>(panels_of(member).begin);
        const PanelRange tile{begin + static_cast<int>(piece.begin), begin + static_cast<int>(piece.end)};
        multiply(kernels_, gate, x, tile, own_.kernel_scratch);
        multiply(kernels_, up, x, tile, own_.kernel_scratch);
        const int output = tile.begin * kPanelRows;
        const int outputs = std::min(spec.ffn_width, tile.end * kPanelRows) - output;
        for (int row = 0; row < row_count_; ++row) {
          float* gated = row_of(buffers_.gate, row, spec.ffn_width) + output;
          kernels_.gated(spec.activation, gated, row_of(buffers_.up, row, spec.ffn_width) + output, outputs,
                         gated);
        }
      });
}

// Every row that is left wants logits.
void StepMember::head() {
  norm_rows(parts_.weights.final_norm(), parts_.head_form);
  probe("final_norm", static_cast<int>(spec_.layers.size()), rows_.normed, spec_.width);
  std::array<Product, 1> products = {
      {{&parts_.weights.head(), parts_.head_form, {buffers_.logits, static_cast<size_t>(spec_.vocab_size)}}}};
  multiply_shared(products, normed_rows());
  if (spec_.logit_softcap == 0.0f) return;
  meet();
  const auto values = static_cast<int64_t>(row_count_) * spec_.vocab_size;
  Share share = share_of(values, thread_, parts_.pool.size());
  kernels_.softcap(spec_.logit_softcap, static_cast<int>(share.end - share.begin),
                   buffers_.logits + share.begin);
}

void StepMember::norm_rows(const float* weight, ActivationForm form) {
  ActivationRows x = normed_rows();
  for (auto row = static_cast<int>(my_rows_.begin); row < my_rows_.end; ++row) {
    kernels_.rms_norm(row_of(rows_.hidden, row, spec_.width), weight, spec_.norm_epsilon, spec_.width,
                      row_of(rows_.normed, row, spec_.width));
    quantize_activation(kernels_, x, row, form);
  }
  meet_rows();
}

void StepMember::quantize_rows(const ActivationRows& x, ActivationForm form) {
  if (form == ActivationForm::kFloat) return;
  for (auto row = static_cast<int>(my_rows_.begin); row < my_rows_.end; ++row) {
    quantize_activation(kernels_, x, row, form);
  }
  meet_rows();
}

void StepMember::add_branch(const float* post_norm) {
  for (auto row = static_cast<int>(my_rows_.begin); row < my_rows_.end; ++row) {
    const float* branch = row_of(buffers_.branch, row, spec_.width);
    if (post_norm != nullptr) {
      float* normed = row_of(rows_.normed, row, spec_.width);
      kernels_.rms_norm(branch, post_norm, spec_.norm_epsilon, spec_.width, normed);
      branch = normed;
    }
    kernels_.add(branch, spec_.width, row_of(rows_.hidden, row, spec_.width));
  }
}

ActivationRows StepMember::activation(const float* values, int in, int rows) const {
  return {.floats = {.rows = rows, .in = in, .stride = static_cast<size_t>(in), .values = values},
          .codes = {.rows = rows, .in = in, .codes = rows_.codes, .scales = rows_.scales, .sums = rows_.sums},
          .wide = {.rows = rows,
                   .in = in,
                   .codes = rows_.wide_codes,
                   .scales = rows_.scales,
                   .sums = rows_.wide_sums}};
}

ActivationRows StepMember::normed_rows() const {
  return activation(rows_.normed, spec_.width, row_count_);
}

template <class Count, class Work>
void StepMember::share_work(Count count_of, int64_t most, Work work) {
  WorkClaims& claims = (*step_.claims)[jobs_ % 2];
  // All have left the job before this one.
  (*step_.claims)[(jobs_ + 1) % 2].reset(thread_);
  ++jobs_;
  const int members = std::min(parts_.pool.size(), kHelpedMembers);
  for (int i = 0; i < members; ++i) {
    const int member = (thread_ + i) % parts_.pool.size();
    const int64_t count = count_of(member);
    // Small towards the end, when others wait.
    const int64_t piece_items = std::clamp<int64_t>(count / kPieces, 1, most);
    for (Share piece = claims.take(member, count, piece_items); piece.begin < piece.end;
         piece = claims.take(member, count, piece_items)) {
      work(member, piece);
    }
  }
}

void StepMember::multiply_shared(std::span<const Product> products, const ActivationRows& x) {
  share_work([&](int member) { return panels_in_share(products, share_of_member(member)); },
             panel_tile(row_count_),
             [&](int member, Share piece) {
               multiply_piece(kernels_, products, x, piece, share_of_member(member), own_.kernel_scratch);
             });
}

Share StepMember::row_share(int count) const {
  return private_ ? Share{0, count} : share_of(count, thread_, parts_.pool.size());
}

void StepMember::meet_rows() const {
  if (!private_) meet();
}

void StepMember::probe(std::string_view name, int layer, const float* values, int n) const {
  if (step_.probe == nullptr) return;
  meet();
  if (thread_ == 0) {
    for (int row = 0; row < row_count_; ++row) {
      int shown = only_logit_rows_ ? step_.logit_rows[row] : row;
      (*step_.probe)(name, layer, shown, {row_of(values, row, n), static_cast<size_t>(n)});
    }
  }
  meet();
}

}  // namespace quire
