// The attention kernels against a double-precision oracle, and the determinism duty: one set of bits for
// every ISA, block size, block placement, chunking, thread count and neighbourhood. Everything unwritten is
// NaN, and all memory ends at unmapped pages.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/kernel_table.h"

namespace quire {
namespace {

struct ModelShape {
  int heads = 4;
  int kv_heads = 2;
  int key_dim = 32;
  int value_dim = 32;
  int window = 0;
  float softcap = 0;
  KvType type = KvType::kF16;
};

// Tokens [0, past) are in the cache; tokens [past, past + rows) are the query rows.
struct Lengths {
  int past;
  int rows;
};

// K, V and q of some sequences: all that the answer may depend on.
class History {
 public:
  History(ModelShape shape, std::vector<Lengths> lengths, uint32_t seed)
      : shape_(shape), lengths_(std::move(lengths)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    const auto values = [&](int count, float spread) {
      std::vector<float> x(static_cast<size_t>(count));
      for (float& v : x) v = spread * normal(random);
      return x;
    };
    for (const Lengths& l : lengths_) {
      const int tokens = l.past + l.rows;
      keys_.push_back(values(tokens * shape.kv_heads * shape.key_dim, 1.5f));
      values_.push_back(values(tokens * shape.kv_heads * shape.value_dim, 1.0f));
      queries_.push_back(values(l.rows * shape.heads * shape.key_dim, 1.5f));
    }
  }

  const ModelShape& shape() const { return shape_; }
  int count() const { return static_cast<int>(lengths_.size()); }
  const Lengths& lengths(int s) const { return lengths_[static_cast<size_t>(s)]; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.key_dim)); }

  const float* key(int s, int token, int kv_head) const {
    return at(keys_, s, token * shape_.kv_heads + kv_head, shape_.key_dim);
  }
  const float* value(int s, int token, int kv_head) const {
    return at(values_, s, token * shape_.kv_heads + kv_head, shape_.value_dim);
  }
  const float* query(int s, int row, int head) const {
    return at(queries_, s, row * shape_.heads + head, shape_.key_dim);
  }

 private:
  static const float* at(const std::vector<std::vector<float>>& x, int s, int index, int dims) {
    return x[static_cast<size_t>(s)].data() + static_cast<size_t>(index) * static_cast<size_t>(dims);
  }

  ModelShape shape_;
  std::vector<Lengths> lengths_;
  std::vector<std::vector<float>> keys_, values_, queries_;
};

// Rounds to float16 and back, by the definition of the format.
double to_f16(float x) {
  if (x == 0) return 0;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), -14) - 10);
  return std::nearbyint(x / unit) * unit;
}

double stored(KvType type, float x) {
  return type == KvType::kF16 ? to_f16(x) : static_cast<double>(x);
}

// What the kernels may deviate by, beside the exact answer.
struct Expected {
  double value;
  double bound;
};

// One (row, head) of sequence s: [value_dim]. Bound: a score has key_dim + 1 roundings of Σ|q k| (softcap
// adds 1e-6 of itself), each p then has twice the largest of these errors and a few units of exp; sums have
// one rounding a token and a few a span.
std::vector<Expected> oracle(const History& history, int s, int row, int head) {
  constexpr double kUnit = 0x1p-24;
  const ModelShape& shape = history.shape();
  const int position = history.lengths(s).past + row;
  const int first = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
  const int kv_head = head / (shape.heads / shape.kv_heads);
  std::vector<double> scores;
  double score_error = 0;
  for (int t = first; t <= position; ++t) {
    double score = 0, size = 0;
    for (int d = 0; d < shape.key_dim; ++d) {
      const double product = static_cast<double>(history.query(s, row, head)[d]) *
                             stored(shape.type, history.key(s, t, kv_head)[d]) * history.scale();
      score += product;
      size += std::abs(product);
    }
    double error = (shape.key_dim + 1) * kUnit * size;
    if (shape.softcap > 0) {
      score = shape.softcap * std::tanh(score / shape.softcap);
      error += 1e-6 * std::abs(score);
    }
    score_error = std::max(score_error, error);
    scores.push_back(score);
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  const double tokens = position + 1 - first;
  const double relative = 2 * score_error + (8 + tokens + 8 * (tokens / kSpanTokens + 2)) * kUnit;
  std::vector<Expected> out;
  for (int d = 0; d < shape.value_dim; ++d) {
    double sum = 0, value = 0, size = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      const double p = std::exp(scores[i] - max);
      const double v = stored(shape.type, history.value(s, first + static_cast<int>(i), kv_head)[d]);
      sum += p;
      value += p * v;
      size += p * std::abs(v);
    }
    out.push_back({value / sum, 2 * relative * size / sum});
  }
  return out;
}

enum class Chunking { kWhole, kOneByOne, kRandom };

struct Variation {
  const KernelTable* table = nullptr;
  int block_tokens = 16;
  int threads = 1;
  Chunking chunking = Chunking::kWhole;
  uint32_t seed = 1;  // of block placement and cuts
};

std::ostream& operator<<(std::ostream& out, const Variation& v) {
  return out << v.table->name << " block " << v.block_tokens << " threads " << v.threads << " chunking "
             << static_cast<int>(v.chunking) << " seed " << v.seed;
}

// Runs a history step by step in paged memory that holds nothing but what a correct engine would have there.
class Run {
 public:
  Run(const History& history, const Variation& variation)
      : history_(history), shape_(history.shape()), v_(variation), random_(variation.seed) {
    head_bytes_ = kv_head_bytes(shape_.type, v_.block_tokens, shape_.key_dim, shape_.value_dim);
    int frames = 0;
    for (int s = 0; s < history.count(); ++s) {
      const int blocks = ceil_div(history.lengths(s).past + history.lengths(s).rows, v_.block_tokens);
      frames += blocks;
      tables_.emplace_back(static_cast<size_t>(blocks), kNoBlock);
      done_.push_back(0);
    }
    for (int i = 0; i < frames; ++i) free_.push_back(BlockId{i});
    std::shuffle(free_.begin(), free_.end(), random_);
    const size_t heads_bytes = head_bytes_ * static_cast<size_t>(shape_.kv_heads);
    frames_ = std::make_unique<GuardedBuffer<std::byte>>(static_cast<size_t>(frames) * heads_bytes * 2);
    layer_.heads = shape_.heads;
    layer_.window = shape_.window;
    layer_.score_scale = history.scale();
    layer_.score_softcap = shape_.softcap;
    layer_.kv = {.base = frames_->data() + heads_bytes,  // the second of two layers
                 .block_stride = 2 * heads_bytes,
                 .head_stride = head_bytes_,
                 .block_tokens = v_.block_tokens,
                 .kv_heads = shape_.kv_heads,
                 .key_dim = shape_.key_dim,
                 .value_dim = shape_.value_dim,
                 .type = shape_.type};
  }

  // The rows' answers, sequence after sequence: [row, heads * value_dim].
  std::vector<std::vector<float>> answers() {
    std::vector<std::vector<float>> out(static_cast<size_t>(history_.count()));
    for (int s = 0; s < history_.count(); ++s) write(s, 0, history_.lengths(s).past);
    for (;;) {
      std::vector<int> rows;
      for (int s = 0; s < history_.count(); ++s) rows.push_back(next_rows(s));
      if (std::accumulate(rows.begin(), rows.end(), 0) > 0) step(rows, out);
      bool finished = true;
      for (int s = 0; s < history_.count(); ++s) finished &= left(s) == 0;
      if (finished) return out;
    }
  }

 private:
  int& done(int s) { return done_[static_cast<size_t>(s)]; }
  int left(int s) { return history_.lengths(s).rows - done(s); }

  int next_rows(int s) {
    if (v_.chunking == Chunking::kWhole) return left(s);
    const int wanted = v_.chunking == Chunking::kOneByOne ? 1 : static_cast<int>(random_() % 9);
    return std::min(wanted, left(s));
  }

  // Leases what tokens [begin, end) of a sequence need and writes them.
  void write(int s, int begin, int end) {
    for (int token = begin; token < end; ++token) {
      BlockId& block = tables_[static_cast<size_t>(s)][static_cast<size_t>(token / v_.block_tokens)];
      if (block == kNoBlock) {
        block = free_.back();
        free_.pop_back();
      }
      for (int head = 0; head < shape_.kv_heads; ++head) {
        v_.table->attention.write_kv(layer_.kv, block, token % v_.block_tokens, head,
                                     history_.key(s, token, head), history_.value(s, token, head));
      }
    }
  }

  // Takes the blocks away that no row from `position` on sees.
  void drop(int s, int position) {
    if (shape_.window == 0) return;
    std::vector<BlockId>& table = tables_[static_cast<size_t>(s)];
    for (int i = 0; (i + 1) * v_.block_tokens <= position - shape_.window + 1; ++i) {
      BlockId& block = table[static_cast<size_t>(i)];
      if (block == kNoBlock) continue;
      std::memset(frames_->data() + static_cast<size_t>(block.value) * layer_.kv.block_stride, 0xff,
                  layer_.kv.block_stride);
      block = kNoBlock;
    }
  }

  void step(const std::vector<int>& rows, std::vector<std::vector<float>>& out) {
    std::vector<AttentionSequence> sequences;
    int row_count = 0;
    for (int s = 0; s < history_.count(); ++s) {
      const int position = history_.lengths(s).past + done(s);
      const int count = rows[static_cast<size_t>(s)];
      write(s, position, position + count);
      drop(s, position);
      sequences.push_back({tables_[static_cast<size_t>(s)], position, count, row_count});
      row_count += count;
    }
    const size_t key_floats = static_cast<size_t>(shape_.heads * shape_.key_dim);
    const size_t out_floats = static_cast<size_t>(shape_.heads * shape_.value_dim);
    const size_t q_stride = key_floats + 3, out_stride = out_floats + 5;
    const GuardedBuffer<float> q(static_cast<size_t>(row_count - 1) * q_stride + key_floats);
    const GuardedBuffer<float> result(static_cast<size_t>(row_count - 1) * out_stride + out_floats);
    size_t row = 0;
    for (int s = 0; s < history_.count(); ++s) {
      for (int i = 0; i < rows[static_cast<size_t>(s)]; ++i, ++row) {
        std::memcpy(q.data() + row * q_stride, history_.query(s, done(s) + i, 0), key_floats * sizeof(float));
      }
    }
    attend(std::move(sequences), {q.data(), q_stride, result.data(), out_stride, nullptr});
    row = 0;
    for (int s = 0; s < history_.count(); ++s) {
      for (int i = 0; i < rows[static_cast<size_t>(s)]; ++i, ++row) {
        const float* from = result.data() + row * out_stride;
        out[static_cast<size_t>(s)].insert(out[static_cast<size_t>(s)].end(), from, from + out_floats);
        if (row + 1 == static_cast<size_t>(row_count)) continue;
        for (size_t pad = out_floats; pad < out_stride; ++pad) EXPECT_TRUE(std::isnan(from[pad]));
      }
      done(s) += rows[static_cast<size_t>(s)];
    }
  }

  void attend(std::vector<AttentionSequence> sequences, AttentionBuffers buffers) {
    const AttentionPlan plan =
        plan_attention(std::move(sequences), shape_.heads, shape_.kv_heads, shape_.window, v_.threads);
    const GuardedBuffer<float> partials(attention_partial_floats(plan, shape_.value_dim));
    buffers.partials = partials.data();
    for (int t = v_.threads - 1; t >= 0; --t) v_.table->attention.attend(layer_, plan, t, buffers);
    for (int t = 0; t < v_.threads; ++t) v_.table->attention.merge(layer_, plan, t, buffers);
  }

  const History& history_;
  const ModelShape shape_;
  const Variation v_;
  std::mt19937 random_;
  size_t head_bytes_ = 0;
  std::unique_ptr<GuardedBuffer<std::byte>> frames_;
  std::vector<BlockId> free_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<int> done_;  // rows
  AttentionLayer layer_;
};

using Answers = std::vector<std::vector<float>>;

// Each sequence alone, row by row, by the scalar kernels.
Answers reference(const History& history) {
  return Run(history, {.table = find_kernels("scalar"), .chunking = Chunking::kOneByOne}).answers();
}

void expect_near_oracle(const History& history, const Answers& answers) {
  const ModelShape& shape = history.shape();
  for (int s = 0; s < history.count(); ++s) {
    const float* actual = answers[static_cast<size_t>(s)].data();
    for (int row = 0; row < history.lengths(s).rows; ++row) {
      for (int head = 0; head < shape.heads; ++head) {
        for (const Expected& expected : oracle(history, s, row, head)) {
          ASSERT_NEAR(*actual, expected.value, expected.bound) << s << " row " << row << " head " << head;
          ++actual;
        }
      }
    }
  }
}

void expect_same(const History& history, const Answers& expected, const Variation& variation) {
  const Answers actual = Run(history, variation).answers();
  for (size_t s = 0; s < expected.size(); ++s) {
    ASSERT_EQ(actual[s].size(), expected[s].size());
    ASSERT_EQ(std::memcmp(actual[s].data(), expected[s].data(), expected[s].size() * sizeof(float)), 0)
        << variation << " sequence " << s;
  }
}

// All kernels in a few variations each, drawn by seed.
void check_sameness(const History& history, int rounds) {
  const Answers expected = reference(history);
  expect_near_oracle(history, expected);
  std::mt19937 random(7);
  const int block_sizes[] = {1, 2, 8, 16, 24, 32, 64, 300};
  const int thread_counts[] = {1, 2, 3, 8};
  const Chunking chunkings[] = {Chunking::kWhole, Chunking::kOneByOne, Chunking::kRandom};
  for (const KernelTable* table : all_tested_kernels()) {
    for (int i = 0; i < rounds; ++i) {
      expect_same(history, expected,
                  {.table = table,
                   .block_tokens = block_sizes[static_cast<size_t>(i) % std::size(block_sizes)],
                   .threads = thread_counts[random() % std::size(thread_counts)],
                   .chunking = chunkings[random() % std::size(chunkings)],
                   .seed = static_cast<uint32_t>(random())});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Attention, FirstToken) {
  check_sameness(History({}, {{0, 1}}, 1), 8);
}

TEST(Attention, PrefillFromNothing) {
  check_sameness(History({}, {{0, 75}}, 2), 8);
}

TEST(Attention, DecodeOverSeveralSpans) {
  check_sameness(History({}, {{1100, 3}}, 3), 8);
}

TEST(Attention, RowsOnBothSidesOfASpanBorder) {
  check_sameness(History({}, {{250, 14}}, 4), 16);
}

TEST(Attention, SequencesTogetherAnswerAsAlone) {
  const std::vector<Lengths> lengths{{0, 20}, {300, 1}, {17, 33}, {511, 2}, {0, 1}};
  const History together({}, lengths, 5);
  check_sameness(together, 8);
}

TEST(Attention, GroupsOfQueryHeads) {
  for (int group : {1, 2, 3, 5, 7, 8, 16}) {
    SCOPED_TRACE(group);
    check_sameness(History({.heads = 2 * group}, {{260, 9}}, 6), 4);
  }
}

TEST(Attention, AnyHeadSizes) {
  const int dims[][2] = {{1, 1}, {8, 8}, {64, 64}, {80, 96}, {96, 80}, {128, 128}, {256, 256}, {7, 33}};
  for (const auto& [key_dim, value_dim] : dims) {
    for (KvType type : {KvType::kF16, KvType::kF32}) {
      SCOPED_TRACE(testing::Message() << key_dim << " " << value_dim);
      check_sameness(
          History({.heads = 3, .kv_heads = 1, .key_dim = key_dim, .value_dim = value_dim, .type = type},
                  {{70, 8}}, 7),
          6);
    }
  }
}

TEST(Attention, WindowsSmallerAndLargerThanSpans) {
  for (int window : {1, 2, 5, 16, 100, 256, 257, 600}) {
    SCOPED_TRACE(window);
    check_sameness(History({.window = window, .type = KvType::kF32}, {{700, 10}, {0, 40}, {255, 4}}, 8), 8);
  }
}

TEST(Attention, Softcap) {
  check_sameness(History({.softcap = 2.0f}, {{400, 10}}, 9), 8);
  check_sameness(History({.window = 50, .softcap = 50.0f, .type = KvType::kF32}, {{400, 10}}, 10), 8);
}

// Scores of hundreds: all weight is on few tokens, exp of the rest is 0.
TEST(Attention, SharpScores) {
  const History history({.key_dim = 256, .type = KvType::kF32}, {{600, 4}}, 11);
  check_sameness(history, 4);
}

TEST(WriteKv, EncodesAsTheFormatSays) {
  constexpr int kKeyDim = 20, kValueDim = 18, kBlock = 40;
  for (KvType type : {KvType::kF32, KvType::kF16}) {
    const size_t head_bytes = kv_head_bytes(type, kBlock, kKeyDim, kValueDim);
    const GuardedBuffer<std::byte> memory(2 * head_bytes);
    const KvLayerView kv{memory.data(), 2 * head_bytes, head_bytes, kBlock, 2, kKeyDim, kValueDim, type};
    std::vector<float> key(kKeyDim), value(kValueDim);
    for (size_t d = 0; d < key.size(); ++d) key[d] = 1.0f + 0x1p-11f + static_cast<float>(d) * 0x1p-10f;
    for (size_t d = 0; d < value.size(); ++d) value[d] = -1e-6f * static_cast<float>(d);
    for (const KernelTable* table : all_tested_kernels()) {
      memory.poison();
      table->attention.write_kv(kv, BlockId{0}, 37, 1, key.data(), value.data());
      const size_t bytes = type == KvType::kF32 ? 4 : 2;
      const std::byte* slice = memory.data() + head_bytes;
      std::vector<std::byte> expected(head_bytes, std::byte{0xff});
      const auto place = [&](size_t index, float x) {
        const double rounded = stored(type, x);
        const int exponent = rounded == 0 ? -15 : std::max(std::ilogb(rounded), -15);
        const double mantissa = std::abs(std::ldexp(rounded, 10 - std::max(exponent, -14)));
        const auto half =
            static_cast<uint16_t>((std::signbit(x) ? 0x8000 : 0) +
                                  (exponent < -14 ? 0 : (exponent + 14) << 10) + static_cast<int>(mantissa));
        if (type == KvType::kF32) {
          std::memcpy(expected.data() + index * bytes, &x, bytes);
        } else {
          std::memcpy(expected.data() + index * bytes, &half, bytes);
        }
      };
      for (size_t d = 0; d < key.size(); ++d) place((2 * kKeyDim + d) * 16 + 5, key[d]);
      for (size_t d = 0; d < value.size(); ++d) place(48 * kKeyDim + 37 * kValueDim + d, value[d]);
      EXPECT_EQ(std::memcmp(slice, expected.data(), head_bytes), 0) << table->name;
      for (size_t i = 0; i < head_bytes; ++i) ASSERT_EQ(memory[i], std::byte{0xff});
    }
  }
}

TEST(AttentionDeathTest, AVisibleBlockMustBeLeased) {
  const ModelShape shape;
  const std::vector<BlockId> blocks{BlockId{0}, kNoBlock};
  const size_t head_bytes = kv_head_bytes(shape.type, 16, shape.key_dim, shape.value_dim);
  std::vector<std::byte> memory(head_bytes * 2);
  const AttentionLayer layer{
      {memory.data(), head_bytes * 2, head_bytes, 16, 2, shape.key_dim, shape.value_dim, shape.type},
      shape.heads,
      0,
      1.0f,
      0.0f};
  const AttentionPlan plan = plan_attention({{blocks, 20, 1, 0}}, shape.heads, shape.kv_heads, 0, 1);
  std::vector<float> q(128), out(128);
  for (const KernelTable* table : all_tested_kernels()) {
    EXPECT_DEATH(table->attention.attend(layer, plan, 0, {q.data(), 128, out.data(), 128, nullptr}), "block");
  }
}

}  // namespace
}  // namespace quire
