// One thread's part of a step.
#pragma once

#include <span>
#include <string_view>

#include "model/product.h"
#include "model/transformer.h"

namespace quire {

// Lives on the stack of a pool thread for one step. All members run the same phases in the same order and
// meet at the barriers between them; a phase reads only what earlier phases wrote.
//
// The row-wise phases (norm, quantisation, residual) are shared by rows; in a private step (see
// kPrivateRowsMax) every member does all rows in its own buffers instead, and meets nobody.
// Cost: 6 barriers a layer in a private step, 10 otherwise; 1 more when attention partials are merged.
class StepMember {
 public:
  StepMember(const TransformerParts& parts, const Step& step, int thread);

  void run();

 private:
  void embed();
  void attention_half(int layer);
  void ffn_half(int layer);
  void head();

  void rotate_and_store(int layer);
  // Norms (when the model does) and rotates one head of q or k in place.
  void rotate_head(int layer, int row, const float* norm, float* values);
  void rotate_query(int layer, int row, int head);
  void store_key_value(int layer, int row, int kv_head);
  // Keeps a key or a query for the profile of its layer: normed, not rotated.
  void record_head(int layer, const float* norm, const float* values, float* to);
  // As it is subtracted from what is stored: [kv_head * head_dim].
  [[nodiscard]] const float* stored_key_mean(int layer) const;
  void attend(int layer);
  // From here on only the rows that want logits live; they move together.
  void keep_logit_rows(int layer);
  void gate_and_up(int layer, const ActivationRows& x);

  // Norms this member's rows of the residual stream and quantises them.
  void norm_rows(const float* weight, ActivationForm form);
  // Quantises this member's rows of `x`; then all rows may be multiplied.
  void quantize_rows(const ActivationRows& x, ActivationForm form);
  // Adds this member's rows of the branch to the residual stream.
  void add_branch(const float* post_norm);

  [[nodiscard]] ActivationRows activation(const float* values, int in, int rows) const;
  [[nodiscard]] ActivationRows normed_rows() const;
  // Calls work(member, piece) until all parts are taken: first for this member's own, then for those of its
  // neighbours. count_of(member): items of a member's part; pieces have at most `most`. A barrier must lie
  // between one call and the next.
  template <class Count, class Work>
  void share_work(Count count_of, int64_t most, Work work);
  [[nodiscard]] ProductShare share_of_member(int member) const { return {member, parts_.pool.size()}; }
  void multiply_shared(std::span<const Product> products, const ActivationRows& x);
  void meet() const { parts_.pool.barrier(); }
  [[nodiscard]] bool is_last(int layer) const { return layer + 1 == static_cast<int>(spec_.layers.size()); }
  // This member's part of `count` rows.
  [[nodiscard]] Share row_share(int count) const;
  // A barrier unless the rows are this member's own.
  void meet_rows() const;
  // Shows [row, n] values to the probe.
  void probe(std::string_view name, int layer, const float* values, int n) const;

  const TransformerParts& parts_;
  const Step& step_;
  const ModelSpec& spec_;
  const KernelTable& kernels_;
  const StepBuffers& buffers_;
  const ThreadBuffers& own_;
  const int thread_;
  const bool private_;
  const RowBuffers& rows_;
  int row_count_;
  Share my_rows_;
  bool only_logit_rows_ = false;  // row i is logit row i
  int jobs_ = 0;                  // that work was shared for
};

}  // namespace quire
