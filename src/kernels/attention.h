// Paged attention: softmax(q·K) V over blocks, through the block table.
//
// The slice of one (block, layer, KV head) holds K in tiles of 16 tokens (a block shorter than 16 is one
// padded tile), K [tile][key_dim][16 tokens], then V [token][value_dim], and the scales of types that have
// them: see kv_layout.h. A layer's slice of a block holds its KV heads one after another; a block holds its
// group's layers one after another. docs/formats/kv_block.md draws it.
//
// Order of operations (the determinism duty): the past is cut in spans of 256 tokens at absolute positions. A
// span yields (max, sum, out[value_dim]) from its visible tokens; spans are merged in ascending order by one
// formula, whoever computed them. Nothing depends on which other rows, threads or blocks there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/kv_geometry.h"
#include "kernels/kv_layout.h"

namespace quire {

struct KeyBiasTable;  // key_bias.h

inline constexpr int kSpanTokens = 256;

// Bytes of one KV head's slice of one block of one layer; a multiple of 64.
[[nodiscard]] size_t kv_head_bytes(KvType type, int block_tokens, int key_dim, int value_dim);

// One layer of one layer group, as the kernels address it:
// slice(block, kv_head) = base + block * block_stride + kv_head * head_stride.
struct KvLayerView {
  std::byte* base = nullptr;
  size_t block_stride = 0;
  size_t head_stride = 0;
  int block_tokens = 0;
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  KvType type;

  [[nodiscard]] std::byte* slice(BlockId block, int kv_head) const {
    return base + static_cast<size_t>(block.value) * block_stride +
           static_cast<size_t>(kv_head) * head_stride;
  }
};

// What is the same for all sequences in one layer.
struct AttentionLayer {
  KvLayerView kv;
  int heads = 0;   // query heads; a multiple of kv.kv_heads
  int window = 0;  // 0 = all; else position p sees p - window + 1 … p
  float score_scale = 1;
  float score_softcap = 0;  // 0 = none
  // What was subtracted from every K before it was written: [kv_head][key_dim], before rotation; nullptr =
  // nothing. Only for types that have scales.
  const float* key_bias = nullptr;
  const KeyBiasTable* key_bias_table = nullptr;
};

// One sequence's query rows in this step, and where the answer goes.
struct AttentionSequence {
  std::span<const BlockId> blocks;  // block table of this layer group
  Position first_position = 0;
  int rows = 0;
  int row_begin = 0;  // of the step's q and out arrays
};

// A part of the work that one thread does in one go: some rows of one sequence for one KV head (its query
// heads folded in), over spans [span_begin, span_end). When that is not all that the rows see, the partial
// results go to the scratch slots from `partial_slot` on and are merged after a barrier.
//
// Where sequences share the blocks of whole spans, an item may do rows of several sequences, its members,
// over such spans; then the results always go to the members' slots, and sequence and rows are not used.
struct AttentionItem {
  int sequence = 0;
  int kv_head = 0;
  int row_begin = 0, row_end = 0;        // within the sequence
  int span_begin = 0, span_end = 0;      // absolute spans of 256 tokens
  int partial_slot = -1;                 // -1: complete, written straight to out
  int member_begin = 0, member_end = 0;  // of the plan's members; empty: the rows of `sequence`
};

// A row that reads shared blocks together with others. It sees all tokens of its item's spans.
struct AttentionMember {
  int sequence = 0;
  int row = 0;   // within the sequence
  int slot = 0;  // head 0's in span 0; another span's is span * span_slots further
  int span_slots = 0;
};

// How the work of one layer group is shared in one step; the same for all its layers. Bits do not depend on
// it.
struct AttentionPlan {
  std::vector<AttentionSequence> sequences;
  std::vector<AttentionMember> members;
  std::vector<std::vector<AttentionItem>> items;  // [thread]: its part; others may help with it
  std::vector<std::vector<AttentionItem>>
      merges;             // [thread]: rows whose partials [span_begin, span_end) are merged
  int partial_slots = 0;  // scratch that the plan needs, in units of one (row, head)
};

// What is the same for all sequences of a layer group, and the threads that share the work.
struct AttentionShape {
  int heads = 0;  // a multiple of kv_heads
  int kv_heads = 0;
  int window = 0;  // 0 = all
  int threads = 1;
  int block_tokens = 0;  // 0: sequences that share blocks read them separately
};

[[nodiscard]] AttentionPlan plan_attention(std::vector<AttentionSequence> sequences,
                                           const AttentionShape& shape);

// A partial result: max, sum, padding to kSlotHeaderFloats, out[value_dim], padding to a multiple of it. The
// slots of an item lie [span - span_begin][(row - row_begin) * group + head], from its partial_slot on; those
// of a row that sees nothing of a span are neither written nor read.
inline constexpr int kSlotHeaderFloats = 16;
[[nodiscard]] size_t attention_slot_floats(int value_dim);

// Floats of scratch that `plan` needs for partial results.
[[nodiscard]] size_t attention_partial_floats(const AttentionPlan& plan, int value_dim);

// q: [row, heads * key_dim] after RoPE, unscaled; out: [row, heads * value_dim]; partials as above.
struct AttentionBuffers {
  const float* q = nullptr;
  size_t q_stride = 0;
  float* out = nullptr;
  size_t out_stride = 0;
  float* partials = nullptr;
};

// The calling thread's own scratch for the attention kernels: at least `floats`, 64-byte aligned, contents
// undefined. It grows to the largest request and stays until the thread ends.
[[nodiscard]] float* attention_scratch(size_t floats);

struct AttentionKernels {
  // Encodes one token's K and V of one KV head into its block: once, never again.
  void (*write_kv)(const KvLayerView& kv, BlockId block, int slot, int kv_head, const float* key,
                   const float* value);
  // Does one of plan.items. All K and V that the rows see are written before (a barrier lies between).
  void (*attend)(const AttentionLayer& layer, const AttentionPlan& plan, const AttentionItem& item,
                 const AttentionBuffers& buffers);
  // Does one of plan.merges; a barrier lies between the last attend and the first merge.
  void (*merge)(const AttentionLayer& layer, const AttentionPlan& plan, const AttentionItem& item,
                const AttentionBuffers& buffers);
};

}  // namespace quire
