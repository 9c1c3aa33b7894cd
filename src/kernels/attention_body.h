// The paged attention kernels of attention.h over the words of an ISA.
//
// One tile of (row, head) pairs at a time walks the spans; per span three phases: scores of all pairs (lanes
// are tokens), softmax per pair, out += p V (lanes are dimensions). K and V are read through the block table,
// once for all pairs of the tile: a decode step reads the cache once per group of query heads, a prefill
// chunk once per kPairs pairs. Where sequences share blocks, the tiles of an item follow each other within a
// span, so that memory is read once for all of them.
//
// attention_tile_body.h states the order of operations within a span, fold() that between spans.
#pragma once

#include <type_traits>

#include "base/check.h"
#include "kernels/attention_tile_body.h"

namespace quire {

// W: the words of one ISA (simd_*.h). Stateless; any thread.
template <class W>
class AttentionBody {
 public:
  static void write_kv(const KvLayerView& kv, BlockId block, int slot, int kv_head, const float* key,
                       const float* value) {
    CHECK(block.value >= 0 && slot >= 0 && slot < kv.block_tokens);
    Codec::write(kv, Work::slice_of(kv, block.value, kv_head), slot, key, value);
  }

  static void attend(const AttentionLayer& layer, const AttentionPlan& plan, const AttentionItem& item,
                     const AttentionBuffers& buffers) {
    const Work work = Work::of(layer, plan, item, buffers);
    switch (layer.kv.type) {
      case KvType::kF32:
        return attend_item<KvType::kF32>(work);
      case KvType::kF16:
        return attend_item<KvType::kF16>(work);
      case KvType::kBF16:
        return attend_item<KvType::kBF16>(work);
      case KvType::kFp8:
        return attend_item<KvType::kFp8>(work);
      case KvType::kInt8:
        return attend_item<KvType::kInt8>(work);
      case KvType::kInt4:
        return attend_item<KvType::kInt4>(work);
    }
  }

  static void merge(const AttentionLayer& layer, const AttentionPlan& plan, const AttentionItem& item,
                    const AttentionBuffers& buffers) {
    const Work work = Work::of(layer, plan, item, buffers);
    for (int pair = 0; pair < work.pairs; ++pair) {
      Running running{.out = work.out(pair)};
      for (int span = item.span_begin; span < item.span_end; ++span) {
        const Range seen = work.visible_in_span(pair, span);
        if (seen.begin == seen.end) continue;
        const float* slot = work.slot(span, pair);
        fold(running, {slot[0], slot[1], slot + kSlotHeaderFloats}, layer.kv.value_dim);
      }
      finish(running, layer.kv);
    }
  }

 private:
  using F32 = typename W::F32;
  using Math = Elementary<W>;
  using Codec = KvCodec<W>;
  using Work = AttentionWork<W>;
  using Range = typename Work::Range;
  using Tiles = AttentionTile<W>;
  using Tile = typename Tiles::Tile;
  static constexpr int kLanes = W::kLanes;
  static constexpr int kPairs = Tiles::kPairs;
  static_assert(kSlotHeaderFloats == kLanes);

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

  template <KvType type>
  static void attend_item(const Work& work) {
    const AttentionItem& item = *work.item;
    if (!work.shared()) return attend_tiles<type>(work, item.span_begin, item.span_end);
    for (int span = item.span_begin; span < item.span_end; ++span) attend_tiles<type>(work, span, span + 1);
  }

  template <KvType type>
  static void attend_tiles(const Work& work, int span_begin, int span_end) {
    for (int pair = 0; pair < work.pairs; pair += kPairs) {
      const int count = Work::least(kPairs, work.pairs - pair);
      Tile tile;
      Tiles::prepare(work, pair, count, tile);
      Running running[kPairs];
      for (int i = 0; i < count; ++i) running[i] = {.out = work.out(pair + i)};
      for (int span = span_begin; span < span_end; ++span) {
        if (Tiles::template attend_span<type>(work, pair, span, tile))
          deliver(work, span, pair, tile, running);
      }
      if (work.item->partial_slot >= 0) continue;
      for (int i = 0; i < count; ++i) finish(running[i], work.layer->kv);
    }
  }

  // --- results of spans ---

  // Hands the span's results on: into the running result, or into the item's slots.
  static void deliver(const Work& work, int span, int first_pair, const Tile& tile, Running* running) {
    const int value_dim = work.layer->kv.value_dim;
    for (int i = 0; i < tile.count; ++i) {
      if (tile.seen[i].begin == tile.seen[i].end) continue;
      const float* out = tile.out + static_cast<size_t>(i) * tile.out_stride;
      if (work.item->partial_slot < 0) {
        fold(running[i], {tile.max[i], tile.sum[i], out}, value_dim);
      } else {
        float* slot = work.slot(span, first_pair + i);
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
      const int count = Work::least(kLanes, value_dim - d);
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

  static void finish(const Running& running, const KvLayerView& kv) {
    const int value_dim = kv.value_dim;
    CHECK(running.spans > 0);
    const F32 inverse = W::set1(1.0f / running.sum);
    for (int d = 0; d < value_dim; d += kLanes) {
      const int count = Work::least(kLanes, value_dim - d);
      store_dims(running.out + d, W::mul(load_dims(running.out + d, count), inverse), count);
    }
    const int rotation = kv_rotation(kv.type, value_dim);
    if (rotation > 1) Codec::rotate(running.out, value_dim, rotation, Codec::other_shift(rotation));
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
