// The paged attention kernels of attention.h over the words of an ISA.
//
// One tile of (row, head) pairs at a time walks the spans; per span three phases: scores of all pairs (lanes
// are tokens), softmax per pair, out += p V (lanes are dimensions). K and V are read through the block table,
// once for all pairs of the tile: a decode step reads the cache once per group of query heads, a prefill
// chunk once per kPairs pairs.
//
// Order of operations per (row, head) and span, whatever the tile, the block size or the ISA:
//   score[t] = Σ_d fma(q[d] * scale, K[t][d]), d ascending from 0;
//   max over the visible tokens; p[t] = exp(score[t] - max);
//   16 partial sums of p, token t - span start goes to number t mod 16, ascending; then halved four times;
//   out[d] = Σ_t fma(p[t], V[t][d]), t ascending from 0.
// Invisible tokens: their scores are replaced, their V rows are not read.
#pragma once

#include <type_traits>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/elementary_body.h"
#include "kernels/rank_update_body.h"

namespace quire {

// W: the words of one ISA (simd_*.h). Stateless; any thread.
template <class W>
class AttentionBody {
 public:
  static void write_kv(const KvLayerView& kv, BlockId block, int slot, int kv_head, const float* key,
                       const float* value) {
    CHECK(block.value >= 0 && slot >= 0 && slot < kv.block_tokens);
    std::byte* slice = slice_of(kv, block.value, kv_head);
    if (kv.type == KvType::kF32) {
      write_rows(kv, reinterpret_cast<float*>(slice), slot, key, value);
    } else {
      write_rows(kv, reinterpret_cast<uint16_t*>(slice), slot, key, value);
    }
  }

  static void attend(const AttentionLayer& layer, const AttentionPlan& plan, int thread,
                     const AttentionBuffers& buffers) {
    for (const AttentionItem& item : plan.items[static_cast<size_t>(thread)]) {
      const Work work = work_of(layer, plan, item, buffers);
      for (int pair = 0; pair < work.pairs; pair += kPairs) {
        const int count = least(kPairs, work.pairs - pair);
        if (layer.kv.type == KvType::kF32) {
          attend_tile<float>(work, pair, count);
        } else {
          attend_tile<uint16_t>(work, pair, count);
        }
      }
    }
  }

  static void merge(const AttentionLayer& layer, const AttentionPlan& plan, int thread,
                    const AttentionBuffers& buffers) {
    for (const AttentionItem& item : plan.merges[static_cast<size_t>(thread)]) {
      const Work work = work_of(layer, plan, item, buffers);
      for (int pair = 0; pair < work.pairs; ++pair) {
        Running running{.out = out_of(work, pair)};
        for (int span = item.span_begin; span < item.span_end; ++span) {
          const Range seen = visible_in_span(work, pair, span);
          if (seen.begin == seen.end) continue;
          const float* slot = slot_of(work, span, pair);
          fold(running, {slot[0], slot[1], slot + kSlotHeaderFloats}, layer.kv.value_dim);
        }
        finish(running, layer.kv.value_dim);
      }
    }
  }

 private:
  using F32 = typename W::F32;
  using Update = RankUpdate<W>;
  using Math = Elementary<W>;
  static constexpr int kLanes = W::kLanes;
  // Few enough that their scores stay in the first-level cache.
  static constexpr int kPairs = Update::kRows > 9 ? Update::kRows : 18 / Update::kRows* Update::kRows;
  // A K tile may begin before the span or end after it; what falls outside is never read.
  static constexpr int kScoreStride = kKeyTile + kSpanTokens + kKeyTile;
  static_assert(kLanes == kKeyTile && kSlotHeaderFloats == kLanes);

  // What one item works on.
  struct Work {
    const AttentionLayer* layer;
    const AttentionSequence* sequence;
    const AttentionItem* item;
    const AttentionBuffers* buffers;
    int group;  // query heads of a KV head
    int pairs;  // rows * group; pair = (row - row_begin) * group + head
  };

  // Tokens [begin, end).
  struct Range {
    int begin;
    int end;
  };

  // A span's result for one pair.
  struct Partial {
    float max;
    float sum;
    const float* out;  // [value_dim]
  };

  // The spans folded so far; `out` is the pair's place in the step's output.
  struct Running {
    float* out;  // [value_dim]
    float max = 0;
    float sum = 0;
    int spans = 0;
  };

  // The pairs that walk the spans together; the arrays live in the thread's scratch.
  struct Tile {
    int count;
    size_t out_stride;  // value_dim, padded to 16
    float* q;           // [pair][key_dim], scaled
    float* scores;      // [pair][kScoreStride], the span's first token at kKeyTile: scores, then p
    float* out;         // [pair][out_stride]: of the current span
    float max[kPairs];
    float sum[kPairs];
    int last_position;   // the furthest that a pair of the tile sees
    Range seen[kPairs];  // of the current span, relative to its start
    Running running[kPairs];
  };

  // V of one block: token t of the span (t >= first_token) at data + (t - first_token) * stride.
  template <class E>
  struct TokenRows {
    const E* data;
    int first_token;
    size_t stride;  // value_dim
    ptrdiff_t ahead;
  };

  static int least(int a, int b) { return a < b ? a : b; }
  static int most(int a, int b) { return a > b ? a : b; }
  static size_t padded(int n) { return static_cast<size_t>((n + kLanes - 1) / kLanes * kLanes); }

  static Work work_of(const AttentionLayer& layer, const AttentionPlan& plan, const AttentionItem& item,
                      const AttentionBuffers& buffers) {
    const int group = layer.heads / layer.kv.kv_heads;
    return {&layer, &plan.sequences[static_cast<size_t>(item.sequence)],
            &item,  &buffers,
            group,  (item.row_end - item.row_begin) * group};
  }

  static std::byte* slice_of(const KvLayerView& kv, int block, int kv_head) {
    return kv.base + static_cast<size_t>(block) * kv.block_stride +
           static_cast<size_t>(kv_head) * kv.head_stride;
  }

  // The slice of block-table entry `index`, which some row sees.
  template <class E>
  static const E* block_slice(const Work& work, int index) {
    CHECK(index >= 0 && static_cast<size_t>(index) < work.sequence->blocks.size());
    const int block = work.sequence->blocks[static_cast<size_t>(index)].value;
    CHECK(block >= 0);
    return reinterpret_cast<const E*>(slice_of(work.layer->kv, block, work.item->kv_head));
  }

  // In bytes; both may belong to different arrays as far as the language knows.
  static ptrdiff_t distance(const void* from, const void* to) {
    return static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
  }

  // Where V begins in a slice, in elements.
  static size_t value_offset(const KvLayerView& kv) {
    return padded(kv.block_tokens) * static_cast<size_t>(kv.key_dim);
  }

  static size_t step_row(const Work& work, int pair) {
    return static_cast<size_t>(work.sequence->row_begin + work.item->row_begin + pair / work.group);
  }
  static int position_of(const Work& work, int pair) {
    return work.sequence->first_position + work.item->row_begin + pair / work.group;
  }
  static size_t query_head(const Work& work, int pair) {
    return static_cast<size_t>(work.item->kv_head * work.group + pair % work.group);
  }
  static float* out_of(const Work& work, int pair) {
    return work.buffers->out + step_row(work, pair) * work.buffers->out_stride +
           query_head(work, pair) * static_cast<size_t>(work.layer->kv.value_dim);
  }
  static float* slot_of(const Work& work, int span, int pair) {
    const size_t index = static_cast<size_t>(work.item->partial_slot) +
                         static_cast<size_t>(span - work.item->span_begin) * static_cast<size_t>(work.pairs) +
                         static_cast<size_t>(pair);
    return work.buffers->partials + index * attention_slot_floats(work.layer->kv.value_dim);
  }

  // What the pair sees of the span, relative to its start; begin == end when nothing.
  static Range visible_in_span(const Work& work, int pair, int span) {
    const int start = span * kSpanTokens;
    const int position = position_of(work, pair);
    const int window = work.layer->window;
    const int first = window > 0 ? most(0, position - window + 1) : 0;
    const int begin = most(first, start) - start;
    const int end = least(position - start, kSpanTokens - 1) + 1;
    return begin < end ? Range{begin, end} : Range{0, 0};
  }

  // --- writing ---

  KERNEL_INLINE void encode(F32 value, float* p) { W::store(p, value); }
  KERNEL_INLINE void encode(F32 value, uint16_t* p) { W::store_f16(p, value); }

  // place(i, code) for each of n values.
  template <class E, class Place>
  static void encode_each(const float* x, int n, Place place) {
    alignas(64) E codes[kLanes];
    for (int i = 0; i < n; i += kLanes) {
      const int count = least(kLanes, n - i);
      encode(W::load_first(x + i, count), codes);
      for (int j = 0; j < count; ++j) place(i + j, codes[j]);
    }
  }

  template <class E>
  static void write_rows(const KvLayerView& kv, E* slice, int slot, const float* key, const float* value) {
    const size_t tile = static_cast<size_t>(slot / kKeyTile) * kKeyTile;
    E* column = slice + tile * static_cast<size_t>(kv.key_dim) + slot % kKeyTile;
    encode_each<E>(key, kv.key_dim,
                   [column](int d, E code) { column[static_cast<size_t>(d) * kKeyTile] = code; });
    E* row = slice + value_offset(kv) + static_cast<size_t>(slot) * static_cast<size_t>(kv.value_dim);
    encode_each<E>(value, kv.value_dim, [row](int d, E code) { row[d] = code; });
  }

  // --- one tile ---

  template <class E>
  static void attend_tile(const Work& work, int first_pair, int count) {
    Tile tile;
    tile.count = count;
    prepare(work, first_pair, tile);
    for (int span = work.item->span_begin; span < work.item->span_end; ++span) {
      Range all{kSpanTokens, 0};
      for (int i = 0; i < count; ++i) {
        tile.seen[i] = visible_in_span(work, first_pair + i, span);
        if (tile.seen[i].begin == tile.seen[i].end) continue;
        all = {least(all.begin, tile.seen[i].begin), most(all.end, tile.seen[i].end)};
      }
      if (all.begin >= all.end) continue;
      score<E>(work, span, all, tile);
      for (int i = 0; i < count; ++i) {
        float* scores = tile.scores + static_cast<size_t>(i) * kScoreStride + kKeyTile;
        if (tile.seen[i].begin < tile.seen[i].end) {
          softmax(work.layer->score_softcap, tile.seen[i], scores, tile.max[i], tile.sum[i]);
        }
      }
      weigh<E>(work, span, all, tile);
      deliver(work, span, first_pair, tile);
    }
    if (work.item->partial_slot >= 0) return;
    for (int i = 0; i < count; ++i) finish(tile.running[i], work.layer->kv.value_dim);
  }

  // Lays out the scratch and scales q into it.
  static void prepare(const Work& work, int first_pair, Tile& tile) {
    const int key_dim = work.layer->kv.key_dim;
    tile.out_stride = padded(work.layer->kv.value_dim);
    tile.last_position = position_of(work, first_pair + tile.count - 1);
    const size_t score_floats = kPairs * static_cast<size_t>(kScoreStride);
    const size_t out_floats = kPairs * tile.out_stride;
    float* scratch = attention_scratch(score_floats + out_floats + kPairs * static_cast<size_t>(key_dim));
    tile.scores = scratch;
    tile.out = scratch + score_floats;
    tile.q = tile.out + out_floats;
    for (int i = 0; i < tile.count; ++i) {
      const int pair = first_pair + i;
      const float* q = work.buffers->q + step_row(work, pair) * work.buffers->q_stride +
                       query_head(work, pair) * static_cast<size_t>(key_dim);
      float* scaled = tile.q + static_cast<size_t>(i) * static_cast<size_t>(key_dim);
      for (int d = 0; d < key_dim; ++d) scaled[d] = q[d] * work.layer->score_scale;
      tile.running[i] = {.out = out_of(work, pair)};
    }
  }

  // Calls f(first row, rows) for the tile's rows in equal parts of at most `rows_max`.
  template <class Function>
  static void for_row_groups(int count, int rows_max, Function f) {
    const int groups = (count + rows_max - 1) / rows_max;
    for (int g = 0; g < groups; ++g) {
      const int begin = count * g / groups;
      f(begin, count * (g + 1) / groups - begin);
    }
  }

  // Scores of the tokens `all` of the span for all pairs.
  template <class E>
  static void score(const Work& work, int span, Range all, Tile& tile) {
    const KvLayerView& kv = work.layer->kv;
    const size_t key_dim = static_cast<size_t>(kv.key_dim);
    const int begin = span * kSpanTokens + all.begin;
    const int end = span * kSpanTokens + all.end;
    for (int block = begin / kv.block_tokens; block * kv.block_tokens < end; ++block) {
      const int block_begin = block * kv.block_tokens;
      const E* keys = block_slice<E>(work, block);
      const bool last = (block + 1) * kv.block_tokens >= end;
      const E* next = last ? block_slice<E>(work, begin / kv.block_tokens) + value_offset(kv)
                           : block_slice<E>(work, block + 1);
      const int first_tile = most(0, begin - block_begin) / kKeyTile;
      const int last_tile = (least(kv.block_tokens, end - block_begin) - 1) / kKeyTile;
      for (int t = first_tile; t <= last_tile;) {
        const size_t offset = static_cast<size_t>(t) * kKeyTile * key_dim;
        const bool two = t < last_tile;
        const int at = kKeyTile + block_begin + t * kKeyTile - span * kSpanTokens;
        const UpdatePanel<E> panel{keys + offset, kKeyTile, kKeyTile * key_dim, kv.key_dim,
                                   distance(keys, next)};
        score_tiles(panel, two ? 2 : 1, at, tile);
        t += two ? 2 : 1;
      }
    }
  }

  template <class E>
  static void score_tiles(const UpdatePanel<E>& panel, int tiles, int at, Tile& tile) {
    const size_t key_dim = static_cast<size_t>(panel.k);
    for_row_groups(tile.count, Update::kRows, [&](int row, int rows) {
      const UpdateRows<const float> q{tile.q + static_cast<size_t>(row) * key_dim, key_dim};
      const UpdateRows<float> c{tile.scores + static_cast<size_t>(row) * kScoreStride + at, kScoreStride};
      if (tiles == 2 && rows <= Update::kWideRows) {
        Update::template wide<UpdateStart::kZero>(rows, q, panel, c);
        return;
      }
      for (int t = 0; t < tiles; ++t) {
        const UpdatePanel<E> one{panel.data + static_cast<size_t>(t) * panel.half_stride, panel.stride, 0,
                                 panel.k, panel.ahead};
        Update::template narrow<UpdateStart::kZero>(rows, q, one, {c.data + t * kKeyTile, c.stride});
      }
    });
  }

  // Turns scores[seen] into p and 0 elsewhere in the vectors that it touches.
  static void softmax(float cap, Range seen, float* scores, float& max, float& sum) {
    const F32 none = W::set1(-__builtin_inff());
    const F32 caps = W::set1(cap);
    const F32 inverse = W::set1(1.0f / cap);
    const int first = seen.begin / kLanes * kLanes;
    F32 most_of = none;
    for (int t = first; t < seen.end; t += kLanes) {
      F32 x = W::load(scores + t);
      if (cap > 0) {
        x = Math::softcap(caps, inverse, x);
        W::store(scores + t, x);
      }
      if (t < seen.begin) x = W::select_first(seen.begin - t, none, x);
      if (seen.end - t < kLanes) x = W::select_first(seen.end - t, x, none);
      most_of = W::max(most_of, x);
    }
    max = W::reduce_max(most_of);
    const F32 max_lanes = W::set1(max);
    F32 sums = W::zero();
    for (int t = first; t < seen.end; t += kLanes) {
      F32 p = Math::exp(W::sub(W::load(scores + t), max_lanes));
      if (t < seen.begin) p = W::select_first(seen.begin - t, W::zero(), p);
      if (seen.end - t < kLanes) p = W::select_first(seen.end - t, p, W::zero());
      W::store(scores + t, p);
      sums = W::add(sums, p);
    }
    sum = W::reduce_add(sums);
  }

  // tile.out = p V over the span, from 0.
  template <class E>
  static void weigh(const Work& work, int span, Range all, Tile& tile) {
    const KvLayerView& kv = work.layer->kv;
    for (size_t i = 0; i < static_cast<size_t>(tile.count) * tile.out_stride; ++i) tile.out[i] = 0.0f;
    const int start = span * kSpanTokens;
    const int begin = start + all.begin;
    const int end = start + all.end;
    for (int block = begin / kv.block_tokens; block * kv.block_tokens < end; ++block) {
      const int block_begin = block * kv.block_tokens;
      const size_t row_stride = static_cast<size_t>(kv.value_dim);
      const E* values = block_slice<E>(work, block) + value_offset(kv);
      const E* next = values;
      if ((block + 1) * kv.block_tokens < end) {
        next = block_slice<E>(work, block + 1) + value_offset(kv);
      } else if (start + kSpanTokens <= tile.last_position) {
        next = block_slice<E>(work, (start + kSpanTokens) / kv.block_tokens);
      }
      const Range tokens{most(begin, block_begin) - start, least(end, block_begin + kv.block_tokens) - start};
      const TokenRows<E> rows{values, block_begin - start, row_stride, distance(values, next)};
      for_row_groups(tile.count, Update::kRows,
                     [&](int row, int count) { weigh_group(rows, tokens, row, count, tile); });
    }
  }

  // The rows of a group see different tokens next to the diagonal and to the window's edge: there each goes
  // alone, so that no V row is read for who does not see it; in between they go together.
  template <class E>
  static void weigh_group(const TokenRows<E>& values, Range tokens, int row, int count, Tile& tile) {
    Range together{0, kSpanTokens};
    for (int i = row; i < row + count; ++i) {
      together = {most(together.begin, tile.seen[i].begin), least(together.end, tile.seen[i].end)};
    }
    together.end = most(together.begin, together.end);
    for (int i = row; i < row + count; ++i) {
      weigh_rows(values,
                 {most(tokens.begin, tile.seen[i].begin),
                  least(least(tokens.end, together.begin), tile.seen[i].end)},
                 i, 1, tile);
    }
    weigh_rows(values, {most(tokens.begin, together.begin), least(tokens.end, together.end)}, row, count,
               tile);
    for (int i = row; i < row + count; ++i) {
      weigh_rows(
          values,
          {most(tokens.begin, most(together.end, tile.seen[i].begin)), least(tokens.end, tile.seen[i].end)},
          i, 1, tile);
    }
  }

  template <class E>
  static void weigh_rows(const TokenRows<E>& values, Range tokens, int row, int count, Tile& tile) {
    if (tokens.begin >= tokens.end) return;
    const int dims = static_cast<int>(values.stride);
    const int k = tokens.end - tokens.begin;
    const E* data = values.data + static_cast<size_t>(tokens.begin - values.first_token) * values.stride;
    const UpdateRows<const float> p{
        tile.scores + static_cast<size_t>(row) * kScoreStride + kKeyTile + tokens.begin, kScoreStride};
    float* out = tile.out + static_cast<size_t>(row) * tile.out_stride;
    int d = 0;
    if (count <= Update::kWideRows) {
      for (; d + 2 * kLanes <= dims; d += 2 * kLanes) {
        const UpdatePanel<E> panel{data + d, values.stride, kLanes, k, values.ahead};
        Update::template wide<UpdateStart::kLoad>(count, p, panel, {out + d, tile.out_stride});
      }
    }
    for (; d + kLanes <= dims; d += kLanes) {
      const UpdatePanel<E> panel{data + d, values.stride, 0, k, values.ahead};
      Update::template narrow<UpdateStart::kLoad>(count, p, panel, {out + d, tile.out_stride});
    }
    if (d < dims) {
      const UpdatePanel<E> panel{data + d, values.stride, 0, k, values.ahead};
      weigh_last_dims(panel, dims - d, p, count, {out + d, tile.out_stride});
    }
  }

  // The dimensions [d, dims) that fill no vector.
  template <class E>
  static void weigh_last_dims(const UpdatePanel<E>& values, int dims, UpdateRows<const float> p, int count,
                              UpdateRows<float> out) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      F32 acc = W::load(out.data + i * out.stride);
      for (size_t k = 0; k < static_cast<size_t>(values.k); ++k) {
        alignas(64) E row[kLanes] = {};
        for (int d = 0; d < dims; ++d) row[d] = values.data[k * values.stride + static_cast<size_t>(d)];
        acc = W::fma(W::set1(p.data[i * p.stride + k]), Update::load(row), acc);
      }
      W::store(out.data + i * out.stride, acc);
    }
  }

  // --- results of spans ---

  // Hands the span's results on: into the running result, or into the item's slots.
  static void deliver(const Work& work, int span, int first_pair, Tile& tile) {
    const int value_dim = work.layer->kv.value_dim;
    for (int i = 0; i < tile.count; ++i) {
      if (tile.seen[i].begin == tile.seen[i].end) continue;
      const float* out = tile.out + static_cast<size_t>(i) * tile.out_stride;
      if (work.item->partial_slot < 0) {
        fold(tile.running[i], {tile.max[i], tile.sum[i], out}, value_dim);
      } else {
        float* slot = slot_of(work, span, first_pair + i);
        slot[0] = tile.max[i];
        slot[1] = tile.sum[i];
        for (int d = 0; d < value_dim; d += kLanes) W::store(slot + kSlotHeaderFloats + d, W::load(out + d));
      }
    }
  }

  // The one formula that joins spans; called in ascending order for each pair.
  static void fold(Running& running, const Partial& partial, int value_dim) {
    const bool first = running.spans++ == 0;
    if (first) {
      running.max = partial.max;
      running.sum = partial.sum;
    }
    const float max = running.max > partial.max ? running.max : partial.max;
    const F32 old_factor = Math::exp(W::set1(running.max - max));
    const F32 new_factor = Math::exp(W::set1(partial.max - max));
    for (int d = 0; d < value_dim; d += kLanes) {
      const int count = least(kLanes, value_dim - d);
      F32 out = W::load(partial.out + d);
      if (!first) {
        out = W::fma(load_dims(running.out + d, count), old_factor, W::mul(out, new_factor));
      }
      store_dims(running.out + d, out, count);
    }
    if (first) return;
    running.sum = __builtin_fmaf(running.sum, first_lane(old_factor), partial.sum * first_lane(new_factor));
    running.max = max;
  }

  static void finish(const Running& running, int value_dim) {
    CHECK(running.spans > 0);
    const F32 inverse = W::set1(1.0f / running.sum);
    for (int d = 0; d < value_dim; d += kLanes) {
      const int count = least(kLanes, value_dim - d);
      store_dims(running.out + d, W::mul(load_dims(running.out + d, count), inverse), count);
    }
  }

  // Partial vectors cost more than whole ones, and the next head's values lie behind.
  KERNEL_INLINE F32 load_dims(const float* p, int count) {
    return count == kLanes ? W::load(p) : W::load_first(p, count);
  }
  KERNEL_INLINE void store_dims(float* p, F32 value, int count) {
    if (count == kLanes) {
      W::store(p, value);
    } else {
      W::store_first(p, value, count);
    }
  }
  static float first_lane(F32 value) {
    alignas(64) float lanes[kLanes];
    W::store(lanes, value);
    return lanes[0];
  }
};

}  // namespace quire
