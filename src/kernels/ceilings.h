// What this machine does at most with one instruction set: the probes that kernels are measured against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace quire {

// Reads all of `data`, 64-byte aligned and a multiple of 64 bytes; returns the sum of its 32-bit words.
using ReadProbe = uint32_t (*)(std::span<const std::byte> data);
// Does one kind of operation and hardly anything else; returns how many, a multiply-add being two. Each turn
// does equally many, some hundred to some hundred thousand.
using OperationProbe = int64_t (*)(int64_t turns);

// nullptr: the instruction set has no such operation of its own.
struct CeilingTable {
  std::string_view name;            // that of the kernels
  ReadProbe read_memory = nullptr;  // many streams, prefetched: for data beyond the caches
  ReadProbe read_cache = nullptr;   // one stream
  OperationProbe float_fma = nullptr;
  OperationProbe int8_dot = nullptr;        // summed as far as the products sum before they widen
  OperationProbe int8_dot_sum32 = nullptr;  // every 4 products are summed in 32 bits
  OperationProbe int16_dot = nullptr;
};

// Those that this build holds and this processor can run, slowest first.
[[nodiscard]] std::span<const CeilingTable* const> available_ceilings();
// nullptr when there is none of that name.
[[nodiscard]] const CeilingTable* find_ceilings(std::string_view name);

// Those that the ceilings_*.cc files of this platform define.
extern const CeilingTable kScalarCeilings;
#if defined(__x86_64__)
extern const CeilingTable kAvx2Ceilings;
extern const CeilingTable kAvx512Ceilings;
extern const CeilingTable kAmxCeilings;  // only the dot
#endif

}  // namespace quire
