// Shares the attention of one step out among threads.
#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/attention.h"
#include "kernels/attention_sharing.h"

namespace quire {
namespace {

// Query rows of one atom times the group are about this many: one register-blocked tile of the kernels.
constexpr int kAtomPairs = 16;
// Reading a token's K and V once costs about as much as using it for this many (row, head) pairs.
constexpr int64_t kTokenReadCost = 3;
// An atom of no more than 1/32 of a thread's part is not cut.
constexpr int64_t kWholeAtomShare = 32;
// Items of a thread's part, where its atoms are that small.
constexpr int64_t kItemsMin = 8;

// The smallest part of the work that is still whole, for one KV head: some rows of one sequence over all
// spans that they see, or over those that they do not read together with others; or rows of several sequences
// over what they share.
struct Atom {
  AttentionItem item;
  int slot = -1;  // >= 0: the results of the rows go to slots anyway, and this is span 0's
};

// Visible tokens of row `row`: positions [begin, end).
struct Visible {
  int64_t begin;
  int64_t end;
};

// Shares atoms out in order, so that each thread gets one contiguous part of about the same cost.
class Planner {
 public:
  Planner(AttentionPlan& plan, const AttentionShape& shape)
      : plan_(plan),
        shape_(shape),
        group_(shape.heads / shape.kv_heads),
        threads_(shape.threads),
        rows_per_atom_(std::max(1, kAtomPairs / group_)),
        shared_until_(plan.sequences.size(), 0),
        first_slot_(plan.sequences.size(), -1) {}

  void run() {
    for (const AttentionSequence& sequence : plan_.sequences)
      CHECK(sequence.rows >= 0 && sequence.first_position >= 0);
    for (const SharedSpans& shared : find_shared_spans(plan_.sequences, shape_, rows_per_atom_))
      make_shared_atoms(shared);
    for (int s = 0; s < static_cast<int>(plan_.sequences.size()); ++s) make_atoms(s);
    for (const Atom& atom : atoms_) total_ += cost(atom.item, atom.item.span_begin, atom.item.span_end);
    for (const Atom& atom : atoms_) share(atom);
    share_merges();
  }

 private:
  const AttentionSequence& sequence(int index) const { return plan_.sequences[static_cast<size_t>(index)]; }

  Visible visible(int index, int row) const {
    const int64_t position = static_cast<int64_t>(sequence(index).first_position) + row;
    return {shape_.window > 0 ? std::max<int64_t>(0, position - shape_.window + 1) : 0, position + 1};
  }

  void make_atoms(int index) {
    const auto at = static_cast<size_t>(index);
    for (int kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
      for (int row = 0; row < sequence(index).rows; row += rows_per_atom_) {
        const int row_end = std::min(sequence(index).rows, row + rows_per_atom_);
        const int64_t begin = visible(index, row).begin;
        const int64_t end = visible(index, row_end - 1).end;
        AttentionItem item{.sequence = index,
                           .kv_head = kv_head,
                           .row_begin = row,
                           .row_end = row_end,
                           .span_begin = static_cast<int>(begin / kSpanTokens),
                           .span_end = static_cast<int>(ceil_div<int64_t>(end, kSpanTokens))};
        if (shared_until_[at] == 0) {
          atoms_.push_back({.item = item});
          continue;
        }
        const int slot = first_slot_[at] + kv_head * head_slots(index);
        AttentionItem merge = item;
        merge.partial_slot = slot;
        shared_merges_.push_back(merge);
        item.span_begin = shared_until_[at];
        atoms_.push_back({.item = item, .slot = slot});
      }
    }
  }

  // Of a sequence that shares: its rows are one atom.
  int row_slots(int index) const { return sequence(index).rows * group_; }
  int head_slots(int index) const {
    const auto spans = ceil_div<int64_t>(visible(index, sequence(index).rows - 1).end, kSpanTokens);
    return row_slots(index) * static_cast<int>(spans);
  }

  void make_shared_atoms(const SharedSpans& shared) {
    for (int index : shared.sequences) {
      const auto at = static_cast<size_t>(index);
      if (first_slot_[at] < 0) first_slot_[at] = add_slots(head_slots(index), shape_.kv_heads);
      shared_until_[at] = shared.span_end;
    }
    for (int kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
      AttentionItem item{.kv_head = kv_head,
                         .span_begin = shared.span_begin,
                         .span_end = shared.span_end,
                         .partial_slot = 0,
                         .member_begin = static_cast<int>(plan_.members.size())};
      for (int index : shared.sequences) {
        const int slot = first_slot_[static_cast<size_t>(index)] + kv_head * head_slots(index);
        for (int row = 0; row < sequence(index).rows; ++row) {
          plan_.members.push_back({index, row, slot + row * group_, row_slots(index)});
        }
      }
      item.member_end = static_cast<int>(plan_.members.size());
      atoms_.push_back({.item = item});
    }
  }

  int64_t cost(const AttentionItem& item, int span_begin, int span_end) const {
    const int64_t first = static_cast<int64_t>(span_begin) * kSpanTokens;
    const int64_t last = static_cast<int64_t>(span_end) * kSpanTokens;
    if (is_shared(item)) {
      const int64_t pairs = static_cast<int64_t>(item.member_end - item.member_begin) * group_;
      return (pairs + kTokenReadCost) * (last - first);
    }
    const auto overlap = [&](int64_t begin, int64_t end) {
      return std::max<int64_t>(0, std::min(end, last) - std::max(begin, first));
    };
    int64_t pairs = 0;
    for (int row = item.row_begin; row < item.row_end; ++row) {
      const Visible seen = visible(item.sequence, row);
      pairs += overlap(seen.begin, seen.end) * group_;
    }
    const int64_t begin = visible(item.sequence, item.row_begin).begin;
    const int64_t end = visible(item.sequence, item.row_end - 1).end;
    return pairs + kTokenReadCost * overlap(begin, end);
  }

  static bool is_shared(const AttentionItem& item) { return item.member_begin < item.member_end; }

  // Where thread_'s part ends, in cost from the start.
  int64_t boundary() const {
    return total_ / threads_ * (thread_ + 1) + total_ % threads_ * (thread_ + 1) / threads_;
  }

  // The end of thread_'s part of the atom's spans [span_begin, atom end): the cut nearest to its boundary.
  int cut(const Atom& atom, int span_begin) const {
    const int end = atom.item.span_end;
    const int64_t room = boundary() - done_;
    const int64_t rest = cost(atom.item, span_begin, end);
    if (thread_ == threads_ - 1 || rest <= room) return end;
    if (rest <= total_ / threads_ / kWholeAtomShare && span_begin == atom.item.span_begin) {
      return rest <= 2 * room ? end : span_begin;
    }
    int64_t before = 0;
    for (int span = span_begin; span < end; ++span) {
      const int64_t after = before + cost(atom.item, span, span + 1);
      if (after >= room) return after - room <= room - before ? span + 1 : span;
      before = after;
    }
    return end;
  }

  void share(const Atom& atom) {
    const AttentionItem& whole = atom.item;
    const int pairs = (whole.row_end - whole.row_begin) * group_;
    int slot = atom.slot < 0 ? -1 : atom.slot + whole.span_begin * pairs;
    int begin = whole.span_begin;
    while (begin < whole.span_end) {
      const int end = cut(atom, begin);
      if (end > begin) {
        AttentionItem item = whole;
        item.span_begin = begin;
        item.span_end = end;
        if (!is_shared(whole) && (slot >= 0 || end - begin < whole.span_end - whole.span_begin)) {
          if (slot < 0) slot = reserve_slots(whole, pairs);
          item.partial_slot = slot + (begin - whole.span_begin) * pairs;
        }
        const int64_t item_cost = cost(whole, begin, end);
        give(item, item_cost);
        done_ += item_cost;
      }
      begin = end;
      if (thread_ < threads_ - 1 && (begin < whole.span_end || done_ >= boundary())) ++thread_;
    }
  }

  // The merges of sequences that share cost about the same: dealt out.
  void share_merges() {
    for (size_t i = 0; i < shared_merges_.size(); ++i)
      plan_.merges[i * static_cast<size_t>(threads_) / shared_merges_.size()].push_back(shared_merges_[i]);
  }

  int add_slots(int count, int times) {
    const int slot = plan_.partial_slots;
    const auto slots = checked_mul(count, times);
    const auto all = slots ? checked_add(slot, *slots) : std::nullopt;
    CHECK(all.has_value());
    plan_.partial_slots = *all;
    return slot;
  }

  int reserve_slots(const AttentionItem& whole, int pairs) {
    AttentionItem merge = whole;
    merge.partial_slot = add_slots(pairs, whole.span_end - whole.span_begin);
    plan_.merges[static_cast<size_t>(thread_)].push_back(merge);
    return merge.partial_slot;
  }

  // Atoms that follow each other become one item, but for so many items that others can help with.
  void give(const AttentionItem& item, int64_t item_cost) {
    std::vector<AttentionItem>& items = plan_.items[static_cast<size_t>(thread_)];
    const bool small = last_cost_ + item_cost <= total_ / threads_ / kItemsMin;
    last_cost_ = small ? last_cost_ + item_cost : item_cost;
    if (small && !items.empty() && item.partial_slot < 0) {
      AttentionItem& last = items.back();
      if (last.partial_slot < 0 && last.sequence == item.sequence && last.kv_head == item.kv_head &&
          last.row_end == item.row_begin) {
        last.row_end = item.row_end;
        last.span_begin = std::min(last.span_begin, item.span_begin);
        last.span_end = std::max(last.span_end, item.span_end);
        return;
      }
    }
    items.push_back(item);
  }

  AttentionPlan& plan_;
  const AttentionShape shape_;
  const int group_;
  const int threads_;
  const int rows_per_atom_;
  std::vector<int> shared_until_;  // [sequence]: the first span that it reads alone
  std::vector<int> first_slot_;    // [sequence]: -1 when it shares nothing
  std::vector<Atom> atoms_;
  std::vector<AttentionItem> shared_merges_;
  int64_t total_ = 0;
  int64_t done_ = 0;       // cost given away so far
  int64_t last_cost_ = 0;  // of the last item
  int thread_ = 0;
};

}  // namespace

AttentionPlan plan_attention(std::vector<AttentionSequence> sequences, const AttentionShape& shape) {
  CHECK(shape.threads > 0 && shape.kv_heads > 0 && shape.heads > 0 && shape.heads % shape.kv_heads == 0);
  CHECK(shape.window >= 0 && shape.block_tokens >= 0);
  AttentionPlan plan;
  plan.sequences = std::move(sequences);
  plan.items.resize(static_cast<size_t>(shape.threads));
  plan.merges.resize(static_cast<size_t>(shape.threads));
  Planner(plan, shape).run();
  return plan;
}

}  // namespace quire
