#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/attention.h"

namespace quire {
namespace {

struct Shape {
  int heads;
  int kv_heads;
  int window;
  int threads;
};

AttentionSequence sequence_at(Position first_position, int rows) {
  return {.blocks = {}, .first_position = first_position, .rows = rows, .row_begin = 0};
}

// First and last visible token of a row.
std::pair<int, int> visible(const AttentionSequence& sequence, int row, int window) {
  const int position = sequence.first_position + row;
  return {window > 0 ? std::max(0, position - window + 1) : 0, position};
}

using Cell = std::tuple<int, int, int, int>;  // sequence, KV head, row, span

// How often each cell of an item that its row sees is counted.
void count_cells(const AttentionPlan& plan, const AttentionItem& item, int window,
                 std::map<Cell, int>& cells) {
  const AttentionSequence& sequence = plan.sequences[static_cast<size_t>(item.sequence)];
  ASSERT_LE(0, item.row_begin);
  ASSERT_LT(item.row_begin, item.row_end);
  ASSERT_LE(item.row_end, sequence.rows);
  for (int row = item.row_begin; row < item.row_end; ++row) {
    const auto [first, last] = visible(sequence, row, window);
    for (int span = item.span_begin; span < item.span_end; ++span) {
      if (last < span * kSpanTokens || first >= (span + 1) * kSpanTokens) continue;
      ++cells[{item.sequence, item.kv_head, row, span}];
    }
  }
}

void expect_complete(const AttentionPlan& plan, const AttentionItem& item, int window) {
  const AttentionSequence& sequence = plan.sequences[static_cast<size_t>(item.sequence)];
  EXPECT_LE(item.span_begin, visible(sequence, item.row_begin, window).first / kSpanTokens);
  EXPECT_GT(item.span_end, visible(sequence, item.row_end - 1, window).second / kSpanTokens);
}

void check_plan(const AttentionPlan& plan, const Shape& shape) {
  const int group = shape.heads / shape.kv_heads;
  ASSERT_EQ(plan.items.size(), static_cast<size_t>(shape.threads));
  ASSERT_EQ(plan.merges.size(), static_cast<size_t>(shape.threads));
  std::map<Cell, int> cells;
  std::map<Cell, int> partial_cells;
  std::map<int, Cell> slots;  // slot -> first (sequence, head, row, span) that uses it
  for (const auto& items : plan.items) {
    for (const AttentionItem& item : items) {
      count_cells(plan, item, shape.window, cells);
      if (item.partial_slot < 0) {
        expect_complete(plan, item, shape.window);
        continue;
      }
      count_cells(plan, item, shape.window, partial_cells);
      int slot = item.partial_slot;
      for (int span = item.span_begin; span < item.span_end; ++span) {
        for (int row = item.row_begin; row < item.row_end; ++row) {
          for (int head = 0; head < group; ++head, ++slot) {
            EXPECT_LT(slot, plan.partial_slots);
            EXPECT_TRUE(slots.emplace(slot, Cell{item.sequence, item.kv_head, row, span}).second) << slot;
          }
        }
      }
    }
  }
  std::map<Cell, int> expected;
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    for (int row = 0; row < plan.sequences[s].rows; ++row) {
      const auto [first, last] = visible(plan.sequences[s], row, shape.window);
      for (int span = first / kSpanTokens; span <= last / kSpanTokens; ++span) {
        for (int head = 0; head < shape.kv_heads; ++head)
          expected[{static_cast<int>(s), head, row, span}] = 1;
      }
    }
  }
  EXPECT_EQ(cells, expected);

  std::map<Cell, int> merged;
  for (const auto& merges : plan.merges) {
    for (const AttentionItem& merge : merges) {
      expect_complete(plan, merge, shape.window);
      count_cells(plan, merge, shape.window, merged);
      int slot = merge.partial_slot;
      for (int span = merge.span_begin; span < merge.span_end; ++span) {
        for (int row = merge.row_begin; row < merge.row_end; ++row) {
          for (int head = 0; head < group; ++head, ++slot) {
            const auto written = slots.find(slot);
            ASSERT_NE(written, slots.end());
            EXPECT_EQ(written->second, (Cell{merge.sequence, merge.kv_head, row, span}));
          }
        }
      }
    }
  }
  EXPECT_EQ(merged, partial_cells);
}

// Visible (row, head, token) triples of a thread.
int64_t work_of(const AttentionPlan& plan, size_t thread, const Shape& shape) {
  int64_t work = 0;
  for (const AttentionItem& item : plan.items[thread]) {
    for (int row = item.row_begin; row < item.row_end; ++row) {
      const auto [first, last] =
          visible(plan.sequences[static_cast<size_t>(item.sequence)], row, shape.window);
      const int64_t begin = std::max(first, item.span_begin * kSpanTokens);
      const int64_t end = std::min(last + 1, item.span_end * kSpanTokens);
      work += std::max<int64_t>(0, end - begin) * (shape.heads / shape.kv_heads);
    }
  }
  return work;
}

TEST(AttentionPlan, CoversEachVisibleSpanOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int kv_heads = 1 + static_cast<int>(random() % 4);
    const int group = 1 + static_cast<int>(random() % 9);
    const int windows[] = {0, 1, 7, 256, 300, 1000};
    const Shape shape{kv_heads * group, kv_heads, windows[random() % 6], 1 + static_cast<int>(random() % 9)};
    std::vector<AttentionSequence> sequences;
    const size_t count = random() % 5;
    for (size_t i = 0; i < count; ++i) {
      sequences.push_back(sequence_at(static_cast<int>(random() % 2000), static_cast<int>(random() % 70)));
    }
    SCOPED_TRACE(round);
    check_plan(plan_attention(sequences, shape.heads, shape.kv_heads, shape.window, shape.threads), shape);
    if (HasFailure()) return;
  }
}

TEST(AttentionPlan, SplitsOneLongDecodeEvenly) {
  for (int threads : {1, 2, 3, 8, 16}) {
    const Shape shape{3, 1, 0, threads};
    const AttentionPlan plan = plan_attention({sequence_at(32 * 1024 - 1, 1)}, 3, 1, 0, threads);
    check_plan(plan, shape);
    for (size_t t = 0; t < static_cast<size_t>(threads); ++t) {
      const double share = 3.0 * 32 * 1024 / threads;
      EXPECT_NEAR(static_cast<double>(work_of(plan, t, shape)), share, 3.0 * kSpanTokens) << t;
    }
  }
}

TEST(AttentionPlan, SharesPrefillAndManyDecodesEvenly) {
  std::vector<AttentionSequence> sequences{sequence_at(0, 512), sequence_at(3000, 100)};
  for (int i = 0; i < 30; ++i) sequences.push_back(sequence_at(100 * i, 1));
  const Shape shape{14, 2, 0, 8};
  const AttentionPlan plan = plan_attention(sequences, 14, 2, 0, 8);
  check_plan(plan, shape);
  int64_t total = 0;
  for (size_t t = 0; t < 8; ++t) total += work_of(plan, t, shape);
  for (size_t t = 0; t < 8; ++t) {
    EXPECT_NEAR(static_cast<double>(work_of(plan, t, shape)), static_cast<double>(total) / 8,
                static_cast<double>(total) / 8 * 0.15);
  }
}

TEST(AttentionPlan, WholeHeadsNeedNoMerge) {
  const AttentionPlan plan = plan_attention({sequence_at(4095, 1)}, 8, 2, 0, 2);
  EXPECT_EQ(plan.partial_slots, 0);
  EXPECT_EQ(plan.items[0].size(), 1u);
  EXPECT_EQ(plan.items[1].size(), 1u);
  EXPECT_EQ(attention_partial_floats(plan, 64), 0u);
}

TEST(AttentionPlan, VisitsOnlyTheSpansOfTheWindow) {
  const AttentionPlan plan = plan_attention({sequence_at(10000, 1)}, 1, 1, 512, 1);
  ASSERT_EQ(plan.items[0].size(), 1u);
  EXPECT_EQ(plan.items[0][0].span_begin, (10000 - 511) / 256);
  EXPECT_EQ(plan.items[0][0].span_end, 10000 / 256 + 1);
}

TEST(KvHeadBytes, CountsPaddedKeysAndRoundsUp) {
  EXPECT_EQ(kv_head_bytes(KvType::kF16, 32, 64, 64), size_t{32 * 64 * 2 * 2});
  EXPECT_EQ(kv_head_bytes(KvType::kF32, 32, 64, 128), size_t{32 * 64 * 4 + 32 * 128 * 4});
  EXPECT_EQ(kv_head_bytes(KvType::kF16, 2, 64, 64), size_t{16 * 64 * 2 + 2 * 64 * 2});
  EXPECT_EQ(kv_head_bytes(KvType::kF16, 1, 3, 5), size_t{128});  // 96 + 10, to a multiple of 64
}

}  // namespace
}  // namespace quire
