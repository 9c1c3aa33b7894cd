// What one item of an attention plan works on: its pairs of (row, query head) and where their data lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "kernels/attention.h"

namespace quire {

// W: the words of one ISA (simd_*.h), so that each has functions of its own. One thread's, for one item.
template <class W>
struct AttentionWork {
  // Tokens [begin, end).
  struct Range {
    int begin;
    int end;
  };

  const AttentionLayer* layer;
  const AttentionPlan* plan;
  const AttentionItem* item;
  const AttentionBuffers* buffers;
  const AttentionSequence* sequence;  // whose block table is read
  int group;                          // query heads of a KV head
  int pairs;                          // rows * group; pair = row's number in the item * group + head

  static AttentionWork of(const AttentionLayer& layer, const AttentionPlan& plan, const AttentionItem& item,
                          const AttentionBuffers& buffers) {
    const int group = layer.heads / layer.kv.kv_heads;
    AttentionWork work{&layer, &plan, &item, &buffers, nullptr, group, 0};
    work.sequence = &work.sequence_of(0);
    work.pairs =
        group * (work.shared() ? item.member_end - item.member_begin : item.row_end - item.row_begin);
    return work;
  }

  static int least(int a, int b) { return a < b ? a : b; }
  static int most(int a, int b) { return a > b ? a : b; }
  static std::byte* slice_of(const KvLayerView& kv, int block, int kv_head) {
    return kv.base + static_cast<size_t>(block) * kv.block_stride +
           static_cast<size_t>(kv_head) * kv.head_stride;
  }

  bool shared() const { return item->member_begin < item->member_end; }
  const AttentionMember& member(int pair) const {
    return plan->members[static_cast<size_t>(item->member_begin + pair / group)];
  }
  const AttentionSequence& sequence_of(int pair) const {
    return plan->sequences[static_cast<size_t>(shared() ? member(pair).sequence : item->sequence)];
  }
  int row_of(int pair) const { return shared() ? member(pair).row : item->row_begin + pair / group; }
  int position_of(int pair) const { return sequence_of(pair).first_position + row_of(pair); }
  size_t step_row(int pair) const { return static_cast<size_t>(sequence_of(pair).row_begin + row_of(pair)); }
  size_t query_head(int pair) const { return static_cast<size_t>(item->kv_head * group + pair % group); }

  // The slice of block-table entry `index`, which some row sees.
  const std::byte* block_slice(int index) const {
    CHECK(index >= 0 && static_cast<size_t>(index) < sequence->blocks.size());
    const int block = sequence->blocks[static_cast<size_t>(index)].value;
    CHECK(block >= 0);
    return slice_of(layer->kv, block, item->kv_head);
  }

  const float* query(int pair) const {
    return buffers->q + step_row(pair) * buffers->q_stride +
           query_head(pair) * static_cast<size_t>(layer->kv.key_dim);
  }
  float* out(int pair) const {
    return buffers->out + step_row(pair) * buffers->out_stride +
           query_head(pair) * static_cast<size_t>(layer->kv.value_dim);
  }
  // The pair's scratch slot for the span.
  float* slot(int span, int pair) const {
    const int index = shared() ? member(pair).slot + span * member(pair).span_slots + pair % group
                               : item->partial_slot + (span - item->span_begin) * pairs + pair;
    return buffers->partials + static_cast<size_t>(index) * attention_slot_floats(layer->kv.value_dim);
  }

  // What the pair sees of the span, relative to its start; begin == end when nothing.
  Range visible_in_span(int pair, int span) const {
    const int start = span * kSpanTokens;
    const int position = position_of(pair);
    const int window = layer->window;
    const int first = window > 0 ? most(0, position - window + 1) : 0;
    const int begin = most(first, start) - start;
    const int end = least(position - start, kSpanTokens - 1) + 1;
    return begin < end ? Range{begin, end} : Range{0, 0};
  }
};

}  // namespace quire
