#include "kernels/attention.h"

#include <algorithm>
#include <memory>
#include <new>

#include "base/check.h"
#include "base/checked.h"

namespace quire {
namespace {

// Query rows of one atom times the group are about this many: one register-blocked tile of the kernels.
constexpr int kAtomPairs = 16;
// Reading a token's K and V once costs about as much as using it for this many (row, head) pairs.
constexpr int64_t kTokenReadCost = 3;
// An atom of no more than 1/32 of a thread's part is not cut.
constexpr int64_t kWholeAtomShare = 32;

// The smallest part of the work that is still whole: some rows of one sequence for one KV head.
struct Atom {
  const AttentionSequence* sequence = nullptr;
  AttentionItem item;  // all spans that the rows see
};

// Visible tokens of row `row`: positions [begin, end).
struct Visible {
  int64_t begin;
  int64_t end;
};

// Shares atoms out in order, so that each thread gets one contiguous part of about the same cost.
class Planner {
 public:
  Planner(AttentionPlan& plan, int heads, int kv_heads, int window, int threads)
      : plan_(plan), kv_heads_(kv_heads), group_(heads / kv_heads), window_(window), threads_(threads) {}

  void run() {
    make_atoms();
    for (const Atom& atom : atoms_) total_ += cost(atom, atom.item.span_begin, atom.item.span_end);
    for (const Atom& atom : atoms_) share(atom);
  }

 private:
  Visible visible(const AttentionSequence& sequence, int row) const {
    const int64_t position = static_cast<int64_t>(sequence.first_position) + row;
    return {window_ > 0 ? std::max<int64_t>(0, position - window_ + 1) : 0, position + 1};
  }

  void make_atoms() {
    const int rows_per_atom = std::max(1, kAtomPairs / group_);
    for (size_t s = 0; s < plan_.sequences.size(); ++s) {
      const AttentionSequence& sequence = plan_.sequences[s];
      CHECK(sequence.rows >= 0 && sequence.first_position >= 0);
      for (int kv_head = 0; kv_head < kv_heads_; ++kv_head) {
        for (int row = 0; row < sequence.rows; row += rows_per_atom) {
          const int row_end = std::min(sequence.rows, row + rows_per_atom);
          const int64_t begin = visible(sequence, row).begin;
          const int64_t end = visible(sequence, row_end - 1).end;
          atoms_.push_back({&sequence,
                            {.sequence = static_cast<int>(s),
                             .kv_head = kv_head,
                             .row_begin = row,
                             .row_end = row_end,
                             .span_begin = static_cast<int>(begin / kSpanTokens),
                             .span_end = static_cast<int>(ceil_div<int64_t>(end, kSpanTokens)),
                             .partial_slot = -1}});
        }
      }
    }
  }

  int64_t cost(const Atom& atom, int span_begin, int span_end) const {
    const int64_t first = static_cast<int64_t>(span_begin) * kSpanTokens;
    const int64_t last = static_cast<int64_t>(span_end) * kSpanTokens;
    const auto overlap = [&](int64_t begin, int64_t end) {
      return std::max<int64_t>(0, std::min(end, last) - std::max(begin, first));
    };
    int64_t pairs = 0;
    for (int row = atom.item.row_begin; row < atom.item.row_end; ++row) {
      const Visible seen = visible(*atom.sequence, row);
      pairs += overlap(seen.begin, seen.end) * group_;
    }
    const int64_t begin = visible(*atom.sequence, atom.item.row_begin).begin;
    const int64_t end = visible(*atom.sequence, atom.item.row_end - 1).end;
    return pairs + kTokenReadCost * overlap(begin, end);
  }

  // Where thread_'s part ends, in cost from the start.
  int64_t boundary() const {
    return total_ / threads_ * (thread_ + 1) + total_ % threads_ * (thread_ + 1) / threads_;
  }

  // The end of thread_'s part of the atom's spans [span_begin, atom end): the cut nearest to its boundary.
  int cut(const Atom& atom, int span_begin) const {
    const int end = atom.item.span_end;
    const int64_t room = boundary() - done_;
    const int64_t rest = cost(atom, span_begin, end);
    if (thread_ == threads_ - 1 || rest <= room) return end;
    if (rest <= total_ / threads_ / kWholeAtomShare && span_begin == atom.item.span_begin) {
      return rest <= 2 * room ? end : span_begin;
    }
    int64_t before = 0;
    for (int span = span_begin; span < end; ++span) {
      const int64_t after = before + cost(atom, span, span + 1);
      if (after >= room) return after - room <= room - before ? span + 1 : span;
      before = after;
    }
    return end;
  }

  void share(const Atom& atom) {
    const AttentionItem& whole = atom.item;
    const int pairs = (whole.row_end - whole.row_begin) * group_;
    int slot = -1;
    int begin = whole.span_begin;
    while (begin < whole.span_end) {
      const int end = cut(atom, begin);
      if (end > begin) {
        AttentionItem item = whole;
        item.span_begin = begin;
        item.span_end = end;
        if (end - begin < whole.span_end - whole.span_begin) {
          if (slot < 0) slot = reserve_slots(whole, pairs);
          item.partial_slot = slot + (begin - whole.span_begin) * pairs;
        }
        give(item);
        done_ += cost(atom, begin, end);
      }
      begin = end;
      if (thread_ < threads_ - 1 && (begin < whole.span_end || done_ >= boundary())) ++thread_;
    }
  }

  int reserve_slots(const AttentionItem& whole, int pairs) {
    const int slot = plan_.partial_slots;
    const auto slots = checked_mul(pairs, whole.span_end - whole.span_begin);
    const auto all = slots ? checked_add(slot, *slots) : std::nullopt;
    CHECK(all.has_value());
    plan_.partial_slots = *all;
    AttentionItem merge = whole;
    merge.partial_slot = slot;
    plan_.merges[static_cast<size_t>(thread_)].push_back(merge);
    return slot;
  }

  void give(const AttentionItem& item) {
    std::vector<AttentionItem>& items = plan_.items[static_cast<size_t>(thread_)];
    if (!items.empty() && item.partial_slot < 0) {
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
  const int kv_heads_;
  const int group_;
  const int window_;
  const int threads_;
  std::vector<Atom> atoms_;
  int64_t total_ = 0;
  int64_t done_ = 0;  // cost given away so far
  int thread_ = 0;
};

}  // namespace

size_t kv_head_bytes(KvType type, int block_tokens, int key_dim, int value_dim) {
  CHECK(block_tokens > 0 && key_dim > 0 && value_dim > 0);
  const size_t key_values =
      static_cast<size_t>(round_up(block_tokens, kKeyTile)) * static_cast<size_t>(key_dim);
  const size_t value_values = static_cast<size_t>(block_tokens) * static_cast<size_t>(value_dim);
  const size_t bytes = type == KvType::kF32 ? 4 : 2;
  return round_up<size_t>((key_values + value_values) * bytes, 64);
}

AttentionPlan plan_attention(std::vector<AttentionSequence> sequences, int heads, int kv_heads, int window,
                             int threads) {
  CHECK(threads > 0 && kv_heads > 0 && heads > 0 && heads % kv_heads == 0 && window >= 0);
  AttentionPlan plan;
  plan.sequences = std::move(sequences);
  plan.items.resize(static_cast<size_t>(threads));
  plan.merges.resize(static_cast<size_t>(threads));
  Planner(plan, heads, kv_heads, window, threads).run();
  return plan;
}

size_t attention_slot_floats(int value_dim) {
  return kSlotHeaderFloats + static_cast<size_t>(round_up(value_dim, kSlotHeaderFloats));
}

size_t attention_partial_floats(const AttentionPlan& plan, int value_dim) {
  return static_cast<size_t>(plan.partial_slots) * attention_slot_floats(value_dim);
}

float* attention_scratch(size_t floats) {
  struct Free {
    void operator()(float* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<float, Free> buffer;
  thread_local size_t capacity = 0;
  if (floats > capacity) {
    buffer.reset(static_cast<float*>(::operator new(floats * sizeof(float), std::align_val_t{64})));
    capacity = floats;
  }
  return buffer.get();
}

}  // namespace quire
