#pragma once

#include <cstdint>
#include <vector>

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// Every row that a step may see was written for exactly these tokens and is still held: none is read before
// it is written, after it is freed, or in another text's place. Marks each row in the store with a hash of
// its prefix, and wipes the frames of free blocks.
class BlockReads : public Checker {
 public:
  explicit BlockReads(const Watched& watched);
  void on_plan(const Planned& planned) override;
  void on_computed(const Planned& planned) override;
  void on_abandon() override;
  void on_beat(std::span<const LivingSequence>) override { wipe_free_blocks(); }

 private:
  void wipe_free_blocks();
  void check_reads(const PlannedSequence& planned, size_t group, std::span<const uint64_t> prefixes);

  std::vector<std::vector<bool>> wiped_;  // [group][block]: and free since then
};

}  // namespace quire::sim
