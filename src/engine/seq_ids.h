// Where sequence ids come from.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/ids.h"

namespace quire {

// Any thread. Invariant: no id is given twice.
class SeqIds {
 public:
  [[nodiscard]] SeqId next() { return SeqId{next_.fetch_add(1, std::memory_order_relaxed)}; }

 private:
  std::atomic<uint64_t> next_{1};
};

}  // namespace quire
