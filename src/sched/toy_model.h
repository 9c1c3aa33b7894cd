// A model for the scheduler's tests: its K and V rows are hashes, so that a wrong, stale or missing row
// changes every later token.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/kv_geometry.h"
#include "core/step_plan.h"
#include "sched/scheduler.h"

namespace quire {

// The row of a group at position p is a hash of the token, p and all rows of the group that p sees; the next
// token is a hash of the newest rows of all groups.
class ToyModel {
 public:
  ToyModel(KvGeometry geometry, int vocab_size)
      : geometry_(std::move(geometry)), vocab_size_(vocab_size), frames_(geometry_.groups.size()) {}

  // Computes the planned rows in the simulated frames; returns the next token for every wanted logits row.
  std::vector<TokenId> forward(const StepPlan& plan) {
    std::vector<TokenId> next;
    for (const PlannedSequence& sequence : plan.sequences) {
      for (size_t i = 0; i < sequence.tokens.size(); ++i) {
        const Position position = sequence.first_position + static_cast<Position>(i);
        std::vector<uint64_t> newest;
        for (size_t g = 0; g < geometry_.groups.size(); ++g) {
          const auto row = [&](Position p) -> uint64_t& { return row_of(g, sequence.block_table[g], p); };
          newest.push_back(row_value(g, sequence.tokens[i], position, row));
          row(position) = newest.back();
        }
        if (static_cast<int>(i) >= sequence.logits_from) next.push_back(token_of(newest));
      }
    }
    return next;
  }

  void copy(const BlockCopy& copy) {
    const auto group = static_cast<size_t>(copy.group);
    for (int slot = 0; slot < geometry_.block_tokens; ++slot)
      frame_row(group, copy.to, slot) = uint64_t{frame_row(group, copy.from, slot)};
  }

  // After each of `tokens`, the next one: alone, without any block.
  [[nodiscard]] std::vector<TokenId> next_tokens(std::span<const TokenId> tokens) const {
    std::vector<std::vector<uint64_t>> rows(geometry_.groups.size());
    std::vector<TokenId> next;
    for (size_t p = 0; p < tokens.size(); ++p) {
      std::vector<uint64_t> newest;
      for (size_t g = 0; g < rows.size(); ++g) {
        const auto row = [&](Position q) -> uint64_t& { return rows[g][static_cast<size_t>(q)]; };
        newest.push_back(row_value(g, tokens[p], static_cast<Position>(p), row));
        rows[g].push_back(newest.back());
      }
      next.push_back(token_of(newest));
    }
    return next;
  }

 private:
  static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ULL)) * 0xbf58476d1ce4e5b9ULL;
    return (x ^ (x >> 29)) * 0x94d049bb133111ebULL;
  }

  template <class Row>
  uint64_t row_value(size_t group, TokenId token, Position position, const Row& row) const {
    const int window = geometry_.groups[group].window;
    uint64_t value = mix(mix(group + 1, static_cast<uint64_t>(token)), static_cast<uint64_t>(position));
    for (Position p = window == 0 ? 0 : std::max(0, position - window + 1); p < position; ++p)
      value = mix(value, row(p));
    return value;
  }

  uint64_t& row_of(size_t group, std::span<const BlockId> blocks, Position position) {
    const auto index = static_cast<size_t>(position / geometry_.block_tokens);
    CHECK(index < blocks.size() && blocks[index] != kNoBlock);
    return frame_row(group, blocks[index], position % geometry_.block_tokens);
  }

  uint64_t& frame_row(size_t group, BlockId block, int slot) {
    const auto index = static_cast<size_t>(block.value) * static_cast<size_t>(geometry_.block_tokens) +
                       static_cast<size_t>(slot);
    if (frames_[group].size() <= index) frames_[group].resize(2 * index + 1);
    return frames_[group][index];
  }

  TokenId token_of(std::span<const uint64_t> newest) const {
    uint64_t value = 0;
    for (uint64_t row : newest) value = mix(value, row);
    return static_cast<TokenId>((value >> 20) % static_cast<uint64_t>(vocab_size_));
  }

  const KvGeometry geometry_;
  const int vocab_size_;
  std::vector<std::vector<uint64_t>> frames_;  // [group][block, slot]
};

}  // namespace quire
