#pragma once

#include <cstdint>
#include <vector>

#include "tests/sim/checkers/checker.h"

namespace quire::sim {

// Every row that a step may see was written for exactly these tokens and is still held: none is read before
// it is written, after it is freed, or in another text's place. Follows each row by a hash of its prefix,
// without the model.
class BlockReads : public Checker {
 public:
  BlockReads(const Scheduler& scheduler, SchedulerOptions options);
  void on_computed(const ScheduledStep& step) override;

 private:
  uint64_t& row(size_t group, BlockId block, int slot);
  void forget_free();
  void copy(const BlockCopy& copy);
  void check_reads(const PlannedSequence& planned, const std::vector<uint64_t>& prefixes);

  std::vector<std::vector<uint64_t>> rows_;  // [group][block, slot]: hash of the prefix; 0 = not written
};

}  // namespace quire::sim
