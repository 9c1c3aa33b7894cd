#include "kernels/attention_sharing.h"

#include <algorithm>
#include <compare>

#include "base/checked.h"

namespace quire {
namespace {

// In units of using one token for one (row, head) pair: reading a token's K and V, and bringing a span's
// result of a pair to its slot and merging it.
constexpr int64_t kTokenReadCost = 3;
constexpr int64_t kPartialCost = 4;
// Slots that shared reading may ask for: some 80 MB with 64 values each.
constexpr int64_t kSlotsMax = int64_t{1} << 18;

class Finder {
 public:
  Finder(const std::vector<AttentionSequence>& sequences, const AttentionShape& shape, int rows_max)
      : sequences_(sequences), shape_(shape), shared_until_(sequences.size(), 0) {
    for (size_t s = 0; s < sequences.size(); ++s) {
      if (sequences[s].rows > 0 && sequences[s].rows <= rows_max && whole_spans(static_cast<int>(s)) > 0) {
        order_.push_back(static_cast<int>(s));
      }
    }
  }

  std::vector<SharedSpans> run() {
    std::ranges::sort(order_, [this](int a, int b) {
      const auto order = std::lexicographical_compare_three_way(
          at(a).blocks.begin(), at(a).blocks.end(), at(b).blocks.begin(), at(b).blocks.end(),
          [](BlockId x, BlockId y) { return x.value <=> y.value; });
      return order < 0 || (order == 0 && a < b);
    });
    for (size_t i = 0; i + 1 < order_.size(); ++i)
      spans_with_next_.push_back(same_spans(order_[i], order_[i + 1]));
    split(0, order_.size());
    return std::move(found_);
  }

 private:
  const AttentionSequence& at(int sequence) const { return sequences_[static_cast<size_t>(sequence)]; }

  // Spans of which the sequence's first row, and so each of them, sees all tokens.
  int whole_spans(int sequence) const { return (at(sequence).first_position + 1) / kSpanTokens; }
  int all_spans(int sequence) const {
    return (at(sequence).first_position + at(sequence).rows - 1) / kSpanTokens + 1;
  }
  int64_t pairs(int sequence) const { return int64_t{at(sequence).rows} * (shape_.heads / shape_.kv_heads); }

  int same_spans(int a, int b) const {
    const int limit = std::min(whole_spans(a), whole_spans(b));
    const auto blocks = static_cast<size_t>(ceil_div(limit * kSpanTokens, shape_.block_tokens));
    const size_t most = std::min({blocks, at(a).blocks.size(), at(b).blocks.size()});
    size_t same = 0;
    while (same < most && at(a).blocks[same] == at(b).blocks[same] && at(a).blocks[same].value >= 0) ++same;
    return std::min<int>(limit,
                         static_cast<int>(same * static_cast<size_t>(shape_.block_tokens) / kSpanTokens));
  }

  // order_[begin, end) in runs that share more and more. Sorted tables: what the ends of a run share, all
  // share.
  void split(size_t begin, size_t end) {
    if (end - begin < 2) return;
    const auto first = spans_with_next_.begin();
    const int common =
        *std::min_element(first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(end) - 1);
    share(begin, end, common);
    for (size_t i = begin; i < end;) {
      size_t next = i + 1;
      while (next < end && spans_with_next_[next - 1] > common) ++next;
      split(i, next);
      i = next;
    }
  }

  // All of a run have shared the same spans until now.
  void share(size_t begin, size_t end, int span_end) {
    const int span_begin = shared_until_[static_cast<size_t>(order_[begin])];
    if (span_end <= span_begin) return;
    const int64_t saved =
        kTokenReadCost * kSpanTokens * (span_end - span_begin) * static_cast<int64_t>(end - begin - 1);
    int64_t slots = 0;
    for (size_t i = begin; i < end; ++i) {
      if (span_begin == 0) slots += pairs(order_[i]) * all_spans(order_[i]);
    }
    if (saved <= kPartialCost * slots || slots_ + slots * shape_.kv_heads > kSlotsMax) return;
    slots_ += slots * shape_.kv_heads;
    SharedSpans& shared = found_.emplace_back();
    shared.span_begin = span_begin;
    shared.span_end = span_end;
    for (size_t i = begin; i < end; ++i) {
      shared.sequences.push_back(order_[i]);
      shared_until_[static_cast<size_t>(order_[i])] = span_end;
    }
  }

  const std::vector<AttentionSequence>& sequences_;
  const AttentionShape shape_;
  std::vector<int> order_;            // sequences that take part, by block table
  std::vector<int> spans_with_next_;  // [order]
  std::vector<int> shared_until_;     // [sequence]
  std::vector<SharedSpans> found_;
  int64_t slots_ = 0;
};

}  // namespace

std::vector<SharedSpans> find_shared_spans(const std::vector<AttentionSequence>& sequences,
                                           const AttentionShape& shape, int rows_max) {
  // The first spans of a window belong to few tokens, and its blocks come and go: not worth it.
  if (shape.window > 0 || shape.block_tokens == 0 || sequences.size() < 2) return {};
  return Finder(sequences, shape, rows_max).run();
}

}  // namespace quire
