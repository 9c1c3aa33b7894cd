// One tile of (row, query head) pairs over one span of 256 tokens: scores, softmax, weighted values.
//
// Order of operations per pair, whatever the tile, the block size, the codec or the ISA:
//   score[t] = Σ_d fma(q[d] * scale, K[t][d]), d ascending from 0; where the bias of K is kept apart, then
//   the terms of key_bias.h; max over the visible tokens; p[t] = exp(score[t] - max); 16 partial sums of p,
//   token t - span start goes to number t mod 16, ascending; then halved four times; out[d] = Σ_t fma(p[t],
//   V[t][d]), t ascending from 0.
// Invisible tokens: their scores are replaced, their V rows are not read.
#pragma once

#include <type_traits>

#include "kernels/attention_work.h"
#include "kernels/elementary_body.h"
#include "kernels/key_bias.h"
#include "kernels/kv_rows_body.h"
#include "kernels/rank_update_body.h"

namespace quire {

// W: the words of one ISA (simd_*.h). Stateless; any thread.
template <class W>
class AttentionTile {
 public:
  using Work = AttentionWork<W>;
  using Range = typename Work::Range;
  using Codec = KvCodec<W>;
  using Update = RankUpdate<W>;
  using Rows = KvRows<W>;

  static constexpr int kLanes = W::kLanes;
  // Few enough that their scores stay in the first-level cache.
  static constexpr int kPairs = Update::kRows > 9 ? Update::kRows : 18 / Update::kRows* Update::kRows;

  // The pairs that walk the spans together; the arrays live in the thread's scratch.
  struct Tile {
    int count;
    size_t out_stride;    // value_dim, padded to 16
    float* q;             // [pair][key_dim], scaled, and rotated where K is
    float* scores;        // [pair][kScoreStride], the span's first token at kKeyTile: scores, then p
    float* out;           // [pair][out_stride]: of the current span
    float* decoded;       // V of 16 tokens, where its rows are no whole vectors
    std::byte* unpacked;  // int4: K of two tiles, or V of kScaledTokens
    float* bias;          // [pair][key_dim]: factors of the bias's terms; nullptr = there is none
    float* span_bias;     // the same, of the current span
    float* angles;        // [key_dim]
    float max[kPairs];
    float sum[kPairs];
    int last_position;   // the furthest that a pair of the tile sees
    Range seen[kPairs];  // of the current span, relative to its start
  };

  // Lays out the scratch and prepares q.
  static void prepare(const Work& work, int first_pair, int count, Tile& tile) {
    const KvLayerView& kv = work.layer->kv;
    tile.count = count;
    tile.out_stride = padded(kv.value_dim);
    tile.last_position = work.position_of(work.shared() ? 0 : first_pair + count - 1);
    const auto key_dim = static_cast<size_t>(kv.key_dim);
    const size_t score_floats = kPairs * static_cast<size_t>(kScoreStride);
    const size_t out_floats = kPairs * tile.out_stride;
    const size_t decoded_floats = kv_has_scales(kv.type) ? kKeyTile * tile.out_stride : 0;
    const size_t unpacked_floats = kv.type == KvType::kInt4 ? unpacked_bytes(kv) / sizeof(float) : 0;
    const bool biased = work.layer->key_bias != nullptr;
    CHECK(!biased || kv_has_scales(kv.type));
    const size_t bias_floats = biased ? (2 * kPairs + 1) * key_dim : 0;
    float* scratch = attention_scratch(score_floats + out_floats + decoded_floats + unpacked_floats +
                                       bias_floats + kPairs * key_dim);
    tile.scores = scratch;
    tile.out = tile.scores + score_floats;
    tile.decoded = tile.out + out_floats;
    tile.unpacked = reinterpret_cast<std::byte*>(tile.decoded + decoded_floats);
    tile.q = tile.decoded + decoded_floats + unpacked_floats;
    tile.bias = biased ? tile.q + kPairs * key_dim : nullptr;
    tile.span_bias = tile.bias + (biased ? kPairs * key_dim : 0);
    tile.angles = tile.span_bias + (biased ? kPairs * key_dim : 0);
    const int rotation = kv_rotation(kv.type, kv.key_dim);
    for (int i = 0; i < count; ++i) {
      const float* q = work.query(first_pair + i);
      float* scaled = tile.q + static_cast<size_t>(i) * key_dim;
      for (size_t d = 0; d < key_dim; ++d) scaled[d] = q[d] * work.layer->score_scale;
      if (biased) multiply_bias(work, scaled, tile.bias + static_cast<size_t>(i) * key_dim);
      if (rotation > 1) Codec::rotate(scaled, kv.key_dim, rotation, Codec::other_shift(rotation));
    }
  }

  // tile.max, tile.sum and tile.out of the pairs that see something of the span; false when none does.
  template <KvType type>
  static bool attend_span(const Work& work, int first_pair, int span, Tile& tile) {
    Range all{kSpanTokens, 0};
    for (int i = 0; i < tile.count; ++i) {
      tile.seen[i] = work.visible_in_span(first_pair + i, span);
      if (tile.seen[i].begin == tile.seen[i].end) continue;
      all = {Work::least(all.begin, tile.seen[i].begin), Work::most(all.end, tile.seen[i].end)};
    }
    if (all.begin >= all.end) return false;
    if (tile.bias != nullptr) turn_bias(work, span, tile);
    score<type>(work, span, all, tile);
    for (int i = 0; i < tile.count; ++i) {
      float* scores = tile.scores + static_cast<size_t>(i) * kScoreStride + kKeyTile;
      if (tile.seen[i].begin < tile.seen[i].end) {
        softmax(work.layer->score_softcap, tile.seen[i], scores, tile.max[i], tile.sum[i]);
      }
    }
    weigh<type>(work, span, all, tile);
    return true;
  }

 private:
  using F32 = typename W::F32;
  using Math = Elementary<W>;
  // A K tile may begin before the span or end after it; what falls outside is never read.
  static constexpr int kScoreStride = kKeyTile + kSpanTokens + kKeyTile;
  static_assert(kLanes == kKeyTile && KeyBiasTable::kMargin == kKeyTile);
  // Tokens whose scales of V are made into floats at a time.
  static constexpr int kScaledTokens = 4 * kKeyTile;

  static constexpr bool has_codes(KvType type) {
    return type == KvType::kFp8 || type == KvType::kInt8 || type == KvType::kInt4;
  }
  // What K and V are as they lie in a block; has_codes() is false.
  template <KvType type>
  using Element = std::conditional_t<type == KvType::kF32, float,
                                     std::conditional_t<type == KvType::kF16, uint16_t, Bf16>>;

  // V of some tokens: token t of the span (t >= first_token) at data + (t - first_token) * stride.
  template <class E>
  struct PlainTokens {
    static constexpr bool kWholeVectors = false;
    const E* data;
    int first_token;
    int dims;
    size_t stride;
    ptrdiff_t ahead;

    [[nodiscard]] auto rows(Range tokens, int d) const {
      const E* first = data + static_cast<size_t>(tokens.begin - first_token) * stride + d;
      return typename Rows::template Plain<E>{first, stride, kLanes, tokens.end - tokens.begin, ahead};
    }
  };

  // The same of bytes; dims is a multiple of two vectors. Scales begin at first_token.
  template <KvType type>
  struct CodedTokens {
    static constexpr bool kWholeVectors = true;
    const std::byte* data;
    int first_token;
    int dims;
    ptrdiff_t ahead;
    const float* scale;
    const float* min;

    [[nodiscard]] auto rows(Range tokens, int d) const {
      const auto skip = static_cast<size_t>(tokens.begin - first_token);
      const auto stride = static_cast<size_t>(dims);
      return typename Rows::template Values<type>{data + skip * stride + d,  stride, scale + skip, min + skip,
                                                  tokens.end - tokens.begin, ahead};
    }
  };

  // int4's bytes are those of int8.
  static constexpr KvType byte_type(KvType type) { return type == KvType::kInt4 ? KvType::kInt8 : type; }

  // Unpacking writes 8 dimensions or 128 bytes at a time.
  static size_t unpacked_tile_bytes(const KvLayerView& kv) {
    return static_cast<size_t>((kv.key_dim + 7) / 8 * 8) * kKeyTile;
  }
  static size_t unpacked_bytes(const KvLayerView& kv) {
    const size_t keys = 2 * unpacked_tile_bytes(kv);
    const size_t values = static_cast<size_t>(kScaledTokens) * static_cast<size_t>(kv.value_dim) + 128;
    return ((keys > values ? keys : values) + 63) / 64 * 64;
  }

  static size_t padded(int n) { return static_cast<size_t>((n + kLanes - 1) / kLanes * kLanes); }

  // In bytes; both may belong to different arrays as far as the language knows.
  static ptrdiff_t distance(const void* from, const void* to) {
    return static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
  }

  // The factors P and Q of a scaled q.
  static void multiply_bias(const Work& work, const float* q, float* to) {
    const RopeFrequencies& rope = work.layer->key_bias_table->rope;
    const int key_dim = work.layer->kv.key_dim;
    const float* b =
        work.layer->key_bias + static_cast<size_t>(work.item->kv_head) * static_cast<size_t>(key_dim);
    const bool halves = rope.pairing == RopeSpec::Pairing::kHalves;
    for (int i = 0; i < rope.dims / 2; ++i) {
      const int first = halves ? i : 2 * i;
      const int second = halves ? i + rope.dims / 2 : 2 * i + 1;
      to[2 * i] = q[first] * b[first] + q[second] * b[second];
      to[2 * i + 1] = q[second] * b[first] - q[first] * b[second];
    }
    for (int d = rope.dims; d < key_dim; ++d) to[d] = q[d] * b[d];
  }

  // The factors as of the span's start.
  static void turn_bias(const Work& work, int span, Tile& tile) {
    const auto dims = static_cast<size_t>(work.layer->key_bias_table->rope.dims);
    const auto key_dim = static_cast<size_t>(work.layer->kv.key_dim);
    const float* cos = span_start_angles(*work.layer->key_bias_table, span, tile.angles);
    const float* sin = cos + dims / 2;
    for (size_t i = 0; i < static_cast<size_t>(tile.count); ++i) {
      const float* from = tile.bias + i * key_dim;
      float* to = tile.span_bias + i * key_dim;
      for (size_t pair = 0; pair < dims / 2; ++pair) {
        to[2 * pair] = from[2 * pair] * cos[pair] + from[2 * pair + 1] * sin[pair];
        to[2 * pair + 1] = from[2 * pair + 1] * cos[pair] - from[2 * pair] * sin[pair];
      }
      for (size_t d = dims; d < key_dim; ++d) to[d] = from[d];
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
  template <KvType type>
  static void score(const Work& work, int span, Range all, Tile& tile) {
    const KvLayerView& kv = work.layer->kv;
    const KvLayout layout = kv_layout(kv.type, kv.block_tokens, kv.key_dim, kv.value_dim);
    const int begin = span * kSpanTokens + all.begin;
    const int end = span * kSpanTokens + all.end;
    for (int block = begin / kv.block_tokens; block * kv.block_tokens < end; ++block) {
      const int block_begin = block * kv.block_tokens;
      const std::byte* slice = work.block_slice(block);
      const bool last = (block + 1) * kv.block_tokens >= end;
      const std::byte* next =
          last ? work.block_slice(begin / kv.block_tokens) + layout.values : work.block_slice(block + 1);
      const int first_tile = Work::most(0, begin - block_begin) / kKeyTile;
      const int last_tile = (Work::least(kv.block_tokens, end - block_begin) - 1) / kKeyTile;
      for (int t = first_tile; t <= last_tile; t += 2) {
        const int tiles = t < last_tile ? 2 : 1;
        const int at = kKeyTile + block_begin + t * kKeyTile - span * kSpanTokens;
        const std::byte* keys = slice + static_cast<size_t>(t) * layout.key_tile_bytes;
        score_keys<type>(work, layout, keys, {tiles, at}, distance(slice, next), tile);
      }
    }
  }

  // One or two neighbouring tiles of K, and where their scores lie in a row of tile.scores.
  struct KeyTiles {
    int count;
    int at;
  };

  template <KvType type>
  static void score_keys(const Work& work, const KvLayout& layout, const std::byte* keys, KeyTiles tiles,
                         ptrdiff_t ahead, Tile& tile) {
    const KvLayerView& kv = work.layer->kv;
    if constexpr (has_codes(type)) {
      score_tiles<UpdateStart::kZero>(coded_keys<type>(kv, layout, keys, tiles.count, ahead, tile), tile.q,
                                      tiles, tile);
      if (tile.bias == nullptr) return;
      const KeyBiasTable& table = *work.layer->key_bias_table;
      const typename Rows::template Plain<float> angles{table.within.data() + tiles.at, table.stride,
                                                        kKeyTile, kv.key_dim, 0};
      score_tiles<UpdateStart::kLoad>(angles, tile.span_bias, tiles, tile);
    } else {
      using E = Element<type>;
      const typename Rows::template Plain<E> rows{reinterpret_cast<const E*>(keys), kKeyTile,
                                                  kKeyTile * static_cast<size_t>(kv.key_dim), kv.key_dim,
                                                  ahead};
      score_tiles<UpdateStart::kZero>(rows, tile.q, tiles, tile);
    }
  }

  template <KvType type>
  static auto coded_keys(const KvLayerView& kv, const KvLayout& layout, const std::byte* keys, int tiles,
                         ptrdiff_t ahead, const Tile& tile) {
    typename Rows::template Keys<byte_type(type)> source{keys, layout.key_tile_bytes, kv.key_dim, ahead, {}};
    if constexpr (type == KvType::kInt4) {
      source.codes = tile.unpacked;
      source.half_stride = unpacked_tile_bytes(kv);
      source.ahead = 0;
    }
    for (int i = 0; i < tiles; ++i) {
      const std::byte* from = keys + static_cast<size_t>(i) * layout.key_tile_bytes;
      source.scales[i] = Codec::key_scales(type, from + layout.key_scales);
      if constexpr (type == KvType::kInt4) {
        Codec::Gaussian::unpack_keys(from, from + layout.key_signs, kv.key_dim,
                                     tile.unpacked + static_cast<size_t>(i) * source.half_stride, ahead);
      }
    }
    return source;
  }

  // Scores of the tiles: factors [pair][row] times the rows of K.
  template <UpdateStart start, class Source>
  static void score_tiles(const Source& keys, const float* factors, KeyTiles tiles, Tile& tile) {
    const auto stride = static_cast<size_t>(keys.rows);
    for_row_groups(tile.count, Update::kRows, [&](int row, int rows) {
      const UpdateRows<const float> a{factors + static_cast<size_t>(row) * stride, stride};
      const UpdateRows<float> c{tile.scores + static_cast<size_t>(row) * kScoreStride + tiles.at,
                                kScoreStride};
      if (tiles.count == 2 && rows <= Update::kWideRows) {
        Update::template wide<start>(rows, a, keys, c);
        return;
      }
      for (int t = 0; t < tiles.count; ++t) {
        Update::template narrow<start>(rows, a, keys.half(t), {c.data + t * kKeyTile, c.stride});
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
  template <KvType type>
  static void weigh(const Work& work, int span, Range all, Tile& tile) {
    const KvLayerView& kv = work.layer->kv;
    const KvLayout layout = kv_layout(kv.type, kv.block_tokens, kv.key_dim, kv.value_dim);
    for (size_t i = 0; i < static_cast<size_t>(tile.count) * tile.out_stride; ++i) tile.out[i] = 0.0f;
    const int start = span * kSpanTokens;
    const int begin = start + all.begin;
    const int end = start + all.end;
    for (int block = begin / kv.block_tokens; block * kv.block_tokens < end; ++block) {
      const int block_begin = block * kv.block_tokens;
      const std::byte* slice = work.block_slice(block);
      const std::byte* next = slice;
      if ((block + 1) * kv.block_tokens < end) {
        next = work.block_slice(block + 1);
      } else if (start + kSpanTokens <= tile.last_position) {
        next = work.block_slice((start + kSpanTokens) / kv.block_tokens);
      }
      const Range tokens{Work::most(begin, block_begin) - start,
                         Work::least(end, block_begin + kv.block_tokens) - start};
      if constexpr (has_codes(type)) {
        weigh_codes<type>(kv, layout, {slice, start - block_begin, 0, distance(slice, next)}, tokens, tile);
      } else {
        using E = Element<type>;
        weigh_tokens(PlainTokens<E>{reinterpret_cast<const E*>(slice + layout.values), block_begin - start,
                                    kv.value_dim, static_cast<size_t>(kv.value_dim), distance(slice, next)},
                     tokens, tile);
      }
    }
  }

  // `block`: where token 0 of the span would lie.
  template <KvType type>
  static void weigh_codes(const KvLayerView& kv, const KvLayout& layout, const typename Codec::Slots& block,
                          Range tokens, Tile& tile) {
    alignas(64) float scale[kScaledTokens];
    alignas(64) float min[kScaledTokens];
    const bool in_registers = kv.value_dim % (2 * kLanes) == 0;
    const int step = in_registers ? kScaledTokens : kKeyTile;
    for (int t = tokens.begin; t < tokens.end; t += step) {
      const Range part{t, Work::least(t + step, tokens.end)};
      if (in_registers) {
        for (int i = part.begin; i < part.end; i += kKeyTile) {
          Codec::value_scales(kv, block.slice + layout.value_scales,
                              {block.slice, block.begin + i, Work::least(kKeyTile, part.end - i), 0},
                              scale + (i - part.begin), min + (i - part.begin));
        }
        const std::byte* rows =
            block.slice + layout.values + static_cast<size_t>(block.begin + t) * layout.value_row_bytes;
        ptrdiff_t ahead = block.ahead;
        if constexpr (type == KvType::kInt4) {
          const int bytes = (part.end - t) * static_cast<int>(layout.value_row_bytes);
          Codec::Gaussian::unpack_values(rows, bytes, tile.unpacked, ahead);
          rows = tile.unpacked;
          ahead = 0;
        }
        weigh_tokens(CodedTokens<byte_type(type)>{rows, t, kv.value_dim, ahead, scale, min}, part, tile);
      } else {
        Codec::decode_values(kv, layout, {block.slice, block.begin + t, part.end - part.begin, block.ahead},
                             tile.decoded, tile.out_stride);
        weigh_tokens(PlainTokens<float>{tile.decoded, t, kv.value_dim, tile.out_stride, 0}, part, tile);
      }
    }
  }

  template <class Tokens>
  static void weigh_tokens(const Tokens& values, Range tokens, Tile& tile) {
    for_row_groups(tile.count, Update::kRows,
                   [&](int row, int count) { weigh_group(values, tokens, row, count, tile); });
  }

  // The rows of a group see different tokens next to the diagonal and to the window's edge: there each goes
  // alone, so that no V row is read for who does not see it; in between they go together.
  template <class Tokens>
  static void weigh_group(const Tokens& values, Range tokens, int row, int count, Tile& tile) {
    Range together{0, kSpanTokens};
    for (int i = row; i < row + count; ++i) {
      together = {Work::most(together.begin, tile.seen[i].begin),
                  Work::least(together.end, tile.seen[i].end)};
    }
    together.end = Work::most(together.begin, together.end);
    for (int i = row; i < row + count; ++i) {
      weigh_rows(values,
                 {Work::most(tokens.begin, tile.seen[i].begin),
                  Work::least(Work::least(tokens.end, together.begin), tile.seen[i].end)},
                 i, 1, tile);
    }
    weigh_rows(values, {Work::most(tokens.begin, together.begin), Work::least(tokens.end, together.end)}, row,
               count, tile);
    for (int i = row; i < row + count; ++i) {
      weigh_rows(values,
                 {Work::most(tokens.begin, Work::most(together.end, tile.seen[i].begin)),
                  Work::least(tokens.end, tile.seen[i].end)},
                 i, 1, tile);
    }
  }

  template <class Tokens>
  static void weigh_rows(const Tokens& values, Range tokens, int row, int count, Tile& tile) {
    if (tokens.begin >= tokens.end) return;
    const UpdateRows<const float> p{
        tile.scores + static_cast<size_t>(row) * kScoreStride + kKeyTile + tokens.begin, kScoreStride};
    float* out = tile.out + static_cast<size_t>(row) * tile.out_stride;
    int d = 0;
    if (count <= Update::kWideRows) {
      for (; d + 2 * kLanes <= values.dims; d += 2 * kLanes)
        Update::template wide<UpdateStart::kLoad>(count, p, values.rows(tokens, d),
                                                  {out + d, tile.out_stride});
    }
    for (; d + kLanes <= values.dims; d += kLanes)
      Update::template narrow<UpdateStart::kLoad>(count, p, values.rows(tokens, d),
                                                  {out + d, tile.out_stride});
    if constexpr (!Tokens::kWholeVectors) {
      if (d < values.dims)
        weigh_last_dims(values.rows(tokens, d), values.dims - d, p, count, {out + d, tile.out_stride});
    }
  }

  // The dimensions [d, dims) that fill no vector.
  template <class E>
  static void weigh_last_dims(const typename Rows::template Plain<E>& values, int dims,
                              UpdateRows<const float> p, int count, UpdateRows<float> out) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      F32 acc = W::load(out.data + i * out.stride);
      for (size_t k = 0; k < static_cast<size_t>(values.rows); ++k) {
        alignas(64) std::remove_cvref_t<decltype(values.data[0])> row[kLanes] = {};
        for (int d = 0; d < dims; ++d) row[d] = values.data[k * values.stride + static_cast<size_t>(d)];
        acc = W::fma(W::set1(p.data[i * p.stride + k]), Rows::load_row(row), acc);
      }
      W::store(out.data + i * out.stride, acc);
    }
  }
};

}  // namespace quire
