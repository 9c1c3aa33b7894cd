#include "tests/sim/checkers/block_reads.h"

#include <algorithm>

namespace quire::sim {
namespace {

// [position]: of all tokens up to there.
std::vector<uint64_t> prefix_hashes(std::span<const TokenId> tokens) {
  std::vector<uint64_t> hashes;
  uint64_t hash = 0x243f6a8885a308d3ULL;
  for (TokenId token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 31;
    hashes.push_back(hash | 1);
  }
  return hashes;
}

}  // namespace

BlockReads::BlockReads(const Scheduler& scheduler, SchedulerOptions options)
    : Checker(scheduler, std::move(options)) {
  for (int count : options_.block_counts)
    rows_.emplace_back(static_cast<size_t>(count) * static_cast<size_t>(options_.geometry.block_tokens), 0);
}

uint64_t& BlockReads::row(size_t group, BlockId block, int slot) {
  return rows_[group].at(static_cast<size_t>(block.value) *
                             static_cast<size_t>(options_.geometry.block_tokens) +
                         static_cast<size_t>(slot));
}

void BlockReads::check_reads(const PlannedSequence& planned, const std::vector<uint64_t>& prefixes) {
  const int bt = options_.geometry.block_tokens;
  for (size_t g = 0; g < rows_.size(); ++g) {
    const int window = options_.geometry.groups[g].window;
    const int first = window == 0 ? 0 : std::max(0, planned.first_position - window + 1);
    for (int p = first; p < planned.first_position; ++p) {
      const BlockId block = planned.block_table[g][static_cast<size_t>(p / bt)];
      if (block == kNoBlock) {
        violated("sequence {} sees position {} of group {}, whose block is gone", planned.seq.value, p, g);
        return;
      }
      const BlockState state = scheduler_.pool(static_cast<int>(g)).state(block);
      const bool full = (p / bt + 1) * bt <= planned.first_position;
      if (state != (full ? BlockState::kPinned : BlockState::kOpen))
        violated("sequence {} reads block {} of group {}, which nobody holds as it should", planned.seq.value,
                 block.value, g);
      if (row(g, block, p % bt) != prefixes[static_cast<size_t>(p)]) {
        violated("sequence {} reads position {} in block {} of group {}: {}", planned.seq.value, p,
                 block.value, g, row(g, block, p % bt) == 0 ? "not written" : "another text");
        return;
      }
    }
  }
}

void BlockReads::forget_free() {
  for (size_t g = 0; g < rows_.size(); ++g) {
    const BlockPool& pool = scheduler_.pool(static_cast<int>(g));
    for (int32_t block = 0; block < pool.total(); ++block)
      if (pool.state({block}) == BlockState::kFree)
        for (int slot = 0; slot < options_.geometry.block_tokens; ++slot) row(g, {block}, slot) = 0;
  }
}

void BlockReads::copy(const BlockCopy& copy) {
  const BlockPool& pool = scheduler_.pool(copy.group);
  const BlockState from = pool.state(copy.from);
  if (from != BlockState::kPinned && from != BlockState::kOpen)
    violated("block {} of group {} is copied although nobody holds it", copy.from.value, copy.group);
  if (pool.state(copy.to) != BlockState::kOpen)
    violated("block {} of group {} is copied over although it is not open", copy.to.value, copy.group);
  const auto g = static_cast<size_t>(copy.group);
  for (int slot = 0; slot < options_.geometry.block_tokens; ++slot)
    row(g, copy.to, slot) = row(g, copy.from, slot);
}

void BlockReads::on_computed(const ScheduledStep& step) {
  forget_free();
  for (const BlockCopy& c : step.copies) copy(c);
  for (const PlannedSequence& planned : step.plan.sequences) {
    const std::vector<uint64_t> prefixes = prefix_hashes(scheduler_.tokens(planned.seq));
    check_reads(planned, prefixes);
    for (size_t g = 0; g < rows_.size(); ++g) {
      for (size_t i = 0; i < planned.tokens.size(); ++i) {
        const int p = planned.first_position + static_cast<int>(i);
        const auto index = static_cast<size_t>(p / options_.geometry.block_tokens);
        row(g, planned.block_table[g][index], p % options_.geometry.block_tokens) =
            prefixes[static_cast<size_t>(p)];
      }
    }
  }
}

}  // namespace quire::sim
