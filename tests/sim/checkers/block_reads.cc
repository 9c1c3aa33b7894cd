#include "tests/sim/checkers/block_reads.h"

#include <algorithm>

namespace quire::sim {
namespace {

// [position]: of all tokens up to there; never what a wiped row holds.
std::vector<uint64_t> prefix_hashes(std::span<const TokenId> tokens) {
  std::vector<uint64_t> hashes;
  uint64_t hash = 0x243f6a8885a308d3ULL;
  for (TokenId token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 31;
    hashes.push_back(hash >> 1);
  }
  return hashes;
}

}  // namespace

BlockReads::BlockReads(const Watched& watched) : Checker(watched) {
  for (int count : options().block_counts) wiped_.emplace_back(static_cast<size_t>(count), false);
  wipe_free_blocks();
}

void BlockReads::check_reads(const PlannedSequence& planned, size_t group,
                             std::span<const uint64_t> prefixes) {
  const int bt = options().geometry.block_tokens;
  const int window = options().geometry.groups[group].window;
  const int g = static_cast<int>(group);
  const int first = window == 0 ? 0 : std::max(0, planned.first_position - window + 1);
  for (int p = first; p < planned.first_position; ++p) {
    const BlockId block = planned.block_table[group][static_cast<size_t>(p / bt)];
    if (block == kNoBlock)
      return violated("sequence {} sees position {} of group {}, whose block is gone", planned.seq.value, p,
                      g);
    const BlockState state = scheduler().pool(g).state(block);
    const bool full = (p / bt + 1) * bt <= planned.first_position;
    if (state != (full ? BlockState::kPinned : BlockState::kOpen))
      return violated("sequence {} reads block {} of group {}, which nobody holds as it should",
                      planned.seq.value, block.value, g);
    const uint64_t mark = toy_row(watched_.kv, g, block, p % bt).mark;
    if (mark != prefixes[static_cast<size_t>(p)])
      return violated("sequence {} reads position {} in block {} of group {}: {}", planned.seq.value, p,
                      block.value, g, mark == ~uint64_t{0} ? "not written" : "another text");
  }
}

void BlockReads::on_plan(const Planned& step) {
  for (const PlannedSequence& planned : step.plan.sequences) {
    const std::vector<uint64_t> prefixes = prefix_hashes(scheduler().tokens(planned.seq));
    for (size_t g = 0; g < options().geometry.groups.size(); ++g) check_reads(planned, g, prefixes);
  }
}

void BlockReads::on_computed(const Planned& step) {
  const int bt = options().geometry.block_tokens;
  for (const PlannedSequence& planned : step.plan.sequences) {
    const std::vector<uint64_t> prefixes = prefix_hashes(scheduler().tokens(planned.seq));
    for (size_t g = 0; g < options().geometry.groups.size(); ++g) {
      for (size_t i = 0; i < planned.tokens.size(); ++i) {
        const int p = planned.first_position + static_cast<int>(i);
        const BlockId block = planned.block_table[g][static_cast<size_t>(p / bt)];
        toy_row(watched_.kv, static_cast<int>(g), block, p % bt).mark = prefixes[static_cast<size_t>(p)];
      }
    }
  }
}

// Blocks that were leased and copied to are free again.
void BlockReads::on_abandon() {
  for (std::vector<bool>& blocks : wiped_) blocks.assign(blocks.size(), false);
  wipe_free_blocks();
}

void BlockReads::wipe_free_blocks() {
  for (size_t g = 0; g < wiped_.size(); ++g) {
    const BlockPool& pool = scheduler().pool(static_cast<int>(g));
    for (int32_t block = 0; block < pool.total(); ++block) {
      const bool free = pool.state({block}) == BlockState::kFree;
      const auto at = static_cast<size_t>(block);
      if (free && !wiped_[g][at]) watched_.kv.poison(static_cast<int>(g), {block});
      wiped_[g][at] = free;
    }
  }
}

}  // namespace quire::sim
