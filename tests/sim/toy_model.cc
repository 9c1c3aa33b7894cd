#include "tests/sim/toy_model.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace quire::sim {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  const uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ULL)) * 0xbf58476d1ce4e5b9ULL;
  return (x ^ (x >> 29)) * 0x94d049bb133111ebULL;
}

// Where a row stands: at a position of a layer group that sees `window` tokens (0 = all).
struct RowPlace {
  size_t group = 0;
  int window = 0;
  Position position = 0;
};

// `seen(p)`: the row's value at an earlier position.
template <class Seen>
uint64_t row_value(const RowPlace& at, TokenId token, const Seen& seen) {
  uint64_t value = mix(mix(at.group + 1, static_cast<uint64_t>(token)), static_cast<uint64_t>(at.position));
  const Position first = at.window == 0 ? 0 : std::max(0, at.position - at.window + 1);
  for (Position p = first; p < at.position; ++p) value = mix(value, seen(p));
  return value;
}

// `newest`: of all groups, mixed one after another.
void write_logits(uint64_t newest, TokenId token, std::span<float> logits) {
  for (int v = 0; v < kVocab; ++v) {
    const auto bits = static_cast<float>(mix(newest, static_cast<uint64_t>(v)) >> 40);  // 24 of them
    logits[static_cast<size_t>(v)] = bits * (6.0f / (1 << 24)) - 3.0f;
  }
  logits[kBroken] = -std::numeric_limits<float>::infinity();
  if (token == kBroken) std::ranges::fill(logits, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

const std::vector<std::string>& toy_pieces() {
  static const std::vector<std::string> pieces = {"a", "b", "c", "d", "e", "f", "<|end|>", "<|broken|>"};
  return pieces;
}

ToyRow& toy_row(KvStore& kv, int group, BlockId block, int slot) {
  return reinterpret_cast<ToyRow*>(kv.layer(group).slice(block, 0))[slot];
}

LogitsView ToyModel::forward(const StepPlan& plan, KvStore& kv) {
  const KvGeometry& geometry = kv.geometry();
  logits_.assign(static_cast<size_t>(plan.logit_row_count()) * kVocab, 0);
  auto logits = std::span(logits_);
  for (const PlannedSequence& sequence : plan.sequences) {
    for (size_t i = 0; i < sequence.tokens.size(); ++i) {
      const Position position = sequence.first_position + static_cast<Position>(i);
      uint64_t newest = 0;
      for (size_t g = 0; g < geometry.groups.size(); ++g) {
        const auto row = [&](Position p) -> ToyRow& {
          const BlockId block = sequence.block_table[g][static_cast<size_t>(p / geometry.block_tokens)];
          CHECK(block != kNoBlock);
          return toy_row(kv, static_cast<int>(g), block, p % geometry.block_tokens);
        };
        const RowPlace at{.group = g, .window = geometry.groups[g].window, .position = position};
        row(position).value = row_value(at, sequence.tokens[i], [&](Position p) { return row(p).value; });
        newest = mix(newest, row(position).value);
      }
      if (static_cast<int>(i) < sequence.logits_from) continue;
      write_logits(newest, sequence.tokens[i], logits.first(kVocab));
      logits = logits.subspan(kVocab);
    }
  }
  return {.values = logits_, .vocab_size = kVocab};
}

ToySequence::ToySequence(const KvGeometry& geometry) : rows_(geometry.groups.size()) {
  for (const LayerGroup& group : geometry.groups) windows_.push_back(group.window);
}

void ToySequence::append(TokenId token) {
  uint64_t newest = 0;
  for (size_t g = 0; g < rows_.size(); ++g) {
    std::vector<uint64_t>& rows = rows_[g];
    const RowPlace at{.group = g, .window = windows_[g], .position = static_cast<Position>(rows.size())};
    rows.push_back(row_value(at, token, [&](Position p) { return rows[static_cast<size_t>(p)]; }));
    newest = mix(newest, rows.back());
  }
  write_logits(newest, token, logits_);
}

}  // namespace quire::sim
