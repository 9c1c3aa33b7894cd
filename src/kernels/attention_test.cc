// The attention kernels against a double-precision oracle, and the determinism duty: one set of bits for
// every ISA, block size, block placement, chunking, thread count and neighbourhood. Everything unwritten is
// NaN, and all memory ends at unmapped pages.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <ranges>
#include <vector>

#include "kernels/attention_history.h"
#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/kernel_table.h"

namespace quire {
namespace {

constexpr KvType kAllKvTypes[] = {KvType::kF32, KvType::kF16,  KvType::kBF16,
                                  KvType::kFp8, KvType::kInt8, KvType::kInt4};

enum class Chunking { kWhole, kOneByOne, kRandom };

struct Variation {
  const KernelTable* table = nullptr;
  int block_tokens = 16;
  int threads = 1;
  Chunking chunking = Chunking::kWhole;
  uint32_t seed = 1;           // of block placement and cuts
  bool shared_blocks = false;  // what sequences have in common is there once
};

std::ostream& operator<<(std::ostream& out, const Variation& v) {
  return out << v.table->name << " block " << v.block_tokens << " threads " << v.threads << " chunking "
             << static_cast<int>(v.chunking) << " seed " << v.seed << (v.shared_blocks ? " shared" : "");
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
      shared_.push_back(v_.shared_blocks ? history.lengths(s).common / v_.block_tokens : 0);
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
    layer_.key_bias = history.bias();
    layer_.key_bias_table = &history.bias_table();
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

  // Rows that read together with others, counted once a step, KV head and range of spans.
  size_t members() const { return members_; }

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
    for (int i = 0; i < shared_[static_cast<size_t>(s)]; ++i) {
      tables_[static_cast<size_t>(s)][static_cast<size_t>(i)] =
          tables_[static_cast<size_t>(s - 1)][static_cast<size_t>(i)];
    }
    for (int token = begin; token < end; ++token) {
      if (token / v_.block_tokens < shared_[static_cast<size_t>(s)]) continue;
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
    if (shape_.window == 0 || v_.shared_blocks) return;
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
    const AttentionPlan plan = plan_attention(std::move(sequences), {.heads = shape_.heads,
                                                                     .kv_heads = shape_.kv_heads,
                                                                     .window = shape_.window,
                                                                     .threads = v_.threads,
                                                                     .block_tokens = v_.block_tokens});
    members_ += plan.members.size();
    const GuardedBuffer<float> partials(attention_partial_floats(plan, shape_.value_dim));
    buffers.partials = partials.data();
    for (const auto& part : plan.items | std::views::reverse) {
      for (const AttentionItem& item : part) v_.table->attention.attend(layer_, plan, item, buffers);
    }
    for (const auto& part : plan.merges) {
      for (const AttentionItem& item : part) v_.table->attention.merge(layer_, plan, item, buffers);
    }
  }

  const History& history_;
  const ModelShape shape_;
  const Variation v_;
  std::mt19937 random_;
  size_t head_bytes_ = 0;
  std::unique_ptr<GuardedBuffer<std::byte>> frames_;
  std::vector<BlockId> free_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<int> done_;    // rows
  std::vector<int> shared_;  // blocks that are those of the sequence before
  size_t members_ = 0;
  AttentionLayer layer_;
};

using Answers = std::vector<std::vector<float>>;

Answers answers_of(const History& history, const Variation& variation) {
  return Run(history, variation).answers();
}

// Each sequence alone, row by row, by the scalar kernels.
Answers reference(const History& history) {
  return answers_of(history, {.table = find_kernels("scalar"), .chunking = Chunking::kOneByOne});
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

void expect_same_answers(const Answers& actual, const Answers& expected, const Variation& variation) {
  for (size_t s = 0; s < expected.size(); ++s) {
    ASSERT_EQ(actual[s].size(), expected[s].size());
    ASSERT_EQ(std::memcmp(actual[s].data(), expected[s].data(), expected[s].size() * sizeof(float)), 0)
        << variation << " sequence " << s;
  }
}

void expect_same(const History& history, const Answers& expected, const Variation& variation) {
  expect_same_answers(answers_of(history, variation), expected, variation);
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

// Every codec in every shape of work.
TEST(Attention, Codecs) {
  for (KvType type : {KvType::kBF16, KvType::kFp8, KvType::kInt8, KvType::kInt4}) {
    SCOPED_TRACE(kv_type_name(type));
    check_sameness(History({.heads = 6, .type = type}, {{0, 20}, {300, 1}, {17, 33}, {511, 2}}, 12), 8);
    check_sameness(History({.window = 100, .softcap = 20, .type = type}, {{270, 9}}, 13), 4);
    for (int dim : {1, 7, 33, 64, 80, 128}) {
      SCOPED_TRACE(dim);
      check_sameness(
          History({.heads = 3, .kv_heads = 1, .key_dim = dim, .value_dim = dim + dim % 3, .type = type},
                  {{70, 4}}, 14),
          4);
    }
  }
}

TEST(Attention, KeepsTheBiasOfKeysApart) {
  for (KvType type : {KvType::kFp8, KvType::kInt8, KvType::kInt4}) {
    for (uint32_t seed : {15, 16}) {
      SCOPED_TRACE(testing::Message() << kv_type_name(type) << " " << seed);
      check_sameness(
          History({.heads = 6, .key_dim = 64, .type = type, .bias = 40}, {{800, 3}, {20, 15}}, seed), 4);
      check_sameness(History({.key_dim = 7, .window = 70, .type = type, .bias = 40}, {{260, 8}}, seed), 4);
    }
  }
}

// A family of prefixes: all have the first 520 tokens, some 1,100.
const std::vector<Lengths> kFamily{{1200, 2},     {1111, 1, 1100}, {1300, 1, 1100}, {530, 1, 520},
                                   {900, 1, 525}, {901, 3, 800},   {1100, 1, 850},  {300, 40, 256},
                                   {256, 1, 256}, {255, 1, 200},   {40, 1, 0},      {600, 1, 30}};

void check_sharing(const History& history) {
  const Answers expected = reference(history);
  std::mt19937 random(8);
  for (const KernelTable* table : all_tested_kernels()) {
    for (int block_tokens : {2, 24, 32}) {
      const Variation variation{.table = table,
                                .block_tokens = block_tokens,
                                .threads = 1 + static_cast<int>(random() % 5),
                                .chunking = random() % 2 == 0 ? Chunking::kWhole : Chunking::kOneByOne,
                                .seed = static_cast<uint32_t>(random()),
                                .shared_blocks = true};
      Run run(history, variation);
      expect_same_answers(run.answers(), expected, variation);
      EXPECT_EQ(run.members() > 0, history.shape().window == 0) << variation;
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Attention, SharedBlocksAreReadTogetherAndAnswerAsAlone) {
  for (KvType type : kAllKvTypes) {
    SCOPED_TRACE(kv_type_name(type));
    check_sharing(
        History({.heads = 6, .type = type, .bias = kv_has_scales(type) ? 20.0f : 0.0f}, kFamily, 17));
  }
}

TEST(Attention, SharedBlocksInEveryShapeOfWork) {
  for (int group : {1, 3, 7}) {
    check_sharing(
        History({.heads = group, .kv_heads = 1, .softcap = 20, .type = KvType::kInt8}, kFamily, 18));
  }
  check_sharing(History({.key_dim = 7, .value_dim = 33, .type = KvType::kInt4}, kFamily, 19));
  check_sharing(History({.window = 300, .softcap = 20, .type = KvType::kInt8}, kFamily, 20));
}

// NaN and infinities of one sequence stay its own, also beside others that share its prefix.
TEST(Attention, OddValuesOfOneSequenceDisturbNoOther) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (KvType type : kAllKvTypes) {
    const ModelShape shape{.heads = 6, .type = type, .bias = kv_has_scales(type) ? 20.0f : 0.0f};
    std::vector<Lengths> lengths{{540, 1}, {560, 3, 512}, {601, 2, 512}, {20, 4}};
    const Answers expected = reference(History(shape, lengths, 21));
    for (float spoiler : {std::nanf(""), kInf, -kInf, 3e38f}) {
      lengths[1].spoiler = spoiler;
      const History history(shape, lengths, 21);
      for (const KernelTable* table : all_tested_kernels()) {
        const Answers actual =
            answers_of(history, {.table = table, .block_tokens = 16, .threads = 2, .shared_blocks = true});
        for (size_t s : {size_t{0}, size_t{2}, size_t{3}}) {
          ASSERT_EQ(actual[s].size(), expected[s].size());
          ASSERT_EQ(std::memcmp(actual[s].data(), expected[s].data(), expected[s].size() * sizeof(float)), 0)
              << table->name << " " << kv_type_name(type) << " " << spoiler << " sequence " << s;
        }
      }
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
  const AttentionPlan plan = plan_attention({{blocks, 20, 1, 0}}, {shape.heads, shape.kv_heads});
  std::vector<float> q(128), out(128);
  for (const KernelTable* table : all_tested_kernels()) {
    EXPECT_DEATH(
        table->attention.attend(layer, plan, plan.items[0][0], {q.data(), 128, out.data(), 128, nullptr}),
        "block");
  }
}

}  // namespace
}  // namespace quire
