#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>
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

AttentionShape planned(const Shape& shape, int block_tokens = 0) {
  return {shape.heads, shape.kv_heads, shape.window, shape.threads, block_tokens};
}

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

// The parts of an item that belong to one sequence each, with the slot of the first span's first row.
std::vector<AttentionItem> parts_of(const AttentionPlan& plan, const AttentionItem& item) {
  if (item.member_begin == item.member_end) return {item};
  std::vector<AttentionItem> parts;
  for (int m = item.member_begin; m < item.member_end; ++m) {
    const AttentionMember& member = plan.members[static_cast<size_t>(m)];
    for (int span = item.span_begin; span < item.span_end; ++span) {
      parts.push_back({.sequence = member.sequence,
                       .kv_head = item.kv_head,
                       .row_begin = member.row,
                       .row_end = member.row + 1,
                       .span_begin = span,
                       .span_end = span + 1,
                       .partial_slot = member.slot + span * member.span_slots});
    }
  }
  return parts;
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
    std::vector<AttentionItem> parts;
    for (const AttentionItem& item : items) {
      for (const AttentionItem& part : parts_of(plan, item)) parts.push_back(part);
    }
    for (const AttentionItem& item : parts) {
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
    check_plan(plan_attention(sequences, planned(shape)), shape);
    if (HasFailure()) return;
  }
}

TEST(AttentionPlan, SplitsOneLongDecodeEvenly) {
  for (int threads : {1, 2, 3, 8, 16}) {
    const Shape shape{3, 1, 0, threads};
    const AttentionPlan plan = plan_attention({sequence_at(32 * 1024 - 1, 1)}, planned(shape));
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
  const AttentionPlan plan = plan_attention(sequences, planned(shape));
  check_plan(plan, shape);
  int64_t total = 0;
  for (size_t t = 0; t < 8; ++t) total += work_of(plan, t, shape);
  for (size_t t = 0; t < 8; ++t) {
    EXPECT_NEAR(static_cast<double>(work_of(plan, t, shape)), static_cast<double>(total) / 8,
                static_cast<double>(total) / 8 * 0.15);
  }
}

TEST(AttentionPlan, WholeHeadsNeedNoMerge) {
  const AttentionPlan plan =
      plan_attention({sequence_at(4095, 1)}, {.heads = 8, .kv_heads = 2, .threads = 2});
  EXPECT_EQ(plan.partial_slots, 0);
  EXPECT_EQ(plan.items[0].size(), 1u);
  EXPECT_EQ(plan.items[1].size(), 1u);
  EXPECT_EQ(attention_partial_floats(plan, 64), 0u);
}

TEST(AttentionPlan, VisitsOnlyTheSpansOfTheWindow) {
  const AttentionPlan plan =
      plan_attention({sequence_at(10000, 1)}, {.heads = 1, .kv_heads = 1, .window = 512});
  ASSERT_EQ(plan.items[0].size(), 1u);
  EXPECT_EQ(plan.items[0][0].span_begin, (10000 - 511) / 256);
  EXPECT_EQ(plan.items[0][0].span_end, 10000 / 256 + 1);
}

// Block tables of `blocks` tokens each of which the first `common` blocks are those of the table before.
struct Tables {
  std::vector<std::vector<BlockId>> tables;
  int next = 0;

  std::span<const BlockId> add(int count, int common) {
    std::vector<BlockId> table;
    for (int i = 0; i < count; ++i)
      table.push_back(i < common ? tables.back()[static_cast<size_t>(i)] : BlockId{next++});
    tables.push_back(std::move(table));
    return tables.back();
  }
};

TEST(AttentionPlan, CoversEachVisibleSpanOnceWhenBlocksAreShared) {
  std::mt19937 random(2);
  size_t shared = 0;
  for (int round = 0; round < 300; ++round) {
    const int kv_heads = 1 + static_cast<int>(random() % 3);
    const int group = 1 + static_cast<int>(random() % 9);
    const int block_sizes[] = {2, 16, 24, 32, 300};
    const int block_tokens = block_sizes[random() % 5];
    const Shape shape{kv_heads * group, kv_heads, random() % 8 == 0 ? 500 : 0,
                      1 + static_cast<int>(random() % 9)};
    Tables tables;
    std::vector<AttentionSequence> sequences;
    for (size_t i = 0; i < 1 + random() % 12; ++i) {
      AttentionSequence sequence =
          sequence_at(static_cast<int>(random() % 2500), static_cast<int>(random() % 6));
      if (random() % 5 == 0) sequence.rows = 40;
      const int blocks = (sequence.first_position + sequence.rows) / block_tokens + 1;
      const int before = i == 0 ? 0 : static_cast<int>(tables.tables.back().size());
      sequence.blocks = tables.add(blocks, std::min(before, blocks) * static_cast<int>(random() % 4) / 3);
      sequences.push_back(sequence);
    }
    SCOPED_TRACE(round);
    std::shuffle(sequences.begin(), sequences.end(), random);
    const AttentionPlan plan = plan_attention(sequences, planned(shape, block_tokens));
    check_plan(plan, shape);
    shared += plan.members.size();
    if (HasFailure()) return;
  }
  EXPECT_GT(shared, 1000u);
}

TEST(AttentionPlan, ReadsSharedSpansOnce) {
  Tables tables;
  std::vector<AttentionSequence> sequences;
  for (int i = 0; i < 16; ++i) {
    AttentionSequence sequence = sequence_at(2010 + i, 1);
    sequence.blocks = tables.add(64, i == 0 ? 0 : 62);  // 1,984 tokens: 7 spans
    sequences.push_back(sequence);
  }
  for (int threads : {1, 2, 5}) {
    const Shape shape{9, 3, 0, threads};
    const AttentionPlan plan = plan_attention(sequences, planned(shape, 32));
    check_plan(plan, shape);
    std::vector<int> spans(3, 0);
    for (const auto& items : plan.items) {
      for (const AttentionItem& item : items) {
        if (item.member_end - item.member_begin == 16)
          spans[static_cast<size_t>(item.kv_head)] += item.span_end - item.span_begin;
      }
    }
    EXPECT_EQ(spans, (std::vector<int>{7, 7, 7}));
    EXPECT_TRUE(plan_attention(sequences, planned(shape, 0)).members.empty());
  }
}

TEST(AttentionPlan, SharesOnlyWhatPays) {
  Tables tables;
  AttentionSequence first = sequence_at(50'000, 1), second = sequence_at(50'000, 1);
  first.blocks = tables.add(1600, 0);
  second.blocks = tables.add(1600, 8);  // one span of 196
  EXPECT_TRUE(
      plan_attention({first, second}, {.heads = 16, .kv_heads = 1, .block_tokens = 32}).members.empty());
}

TEST(KvHeadBytes, CountsPaddedKeysAndRoundsUp) {
  EXPECT_EQ(kv_head_bytes(KvType::kF16, 32, 64, 64), size_t{32 * 64 * 2 * 2});
  EXPECT_EQ(kv_head_bytes(KvType::kF32, 32, 64, 128), size_t{32 * 64 * 4 + 32 * 128 * 4});
  EXPECT_EQ(kv_head_bytes(KvType::kF16, 2, 64, 64), size_t{16 * 64 * 2 + 2 * 64 * 2});
  EXPECT_EQ(kv_head_bytes(KvType::kF16, 1, 3, 5), size_t{128});  // 96 + 10, to a multiple of 64
}

}  // namespace
}  // namespace quire
