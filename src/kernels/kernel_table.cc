#include "kernels/kernel_table.h"

#include <array>

#include "kernels/faster_table.h"
#include "kernels/isa_tables.h"
#include "kernels/matmul_scratch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire {
namespace {

#if defined(__x86_64__)

struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf cpuid_leaf(uint32_t number) {
  CpuidLeaf leaf;
  if (__get_cpuid_count(number, 0, &leaf.eax, &leaf.ebx, &leaf.ecx, &leaf.edx) == 0) return {};
  return leaf;
}

bool has_bits(uint32_t word, std::initializer_list<int> bits) {
  for (int bit : bits) {
    if ((word >> bit & 1u) == 0) return false;
  }
  return true;
}

// Which register states the operating system saves: XCR0. Needs OSXSAVE.
uint32_t saved_states() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

struct Processor {
  bool avx2 = false;    // AVX2, FMA, F16C, BMI2
  bool avx512 = false;  // F, DQ, BW, VL, VNNI
  bool amx = false;     // tiles of int8; the system lets this process use them
};

// The tile registers' data is a state that a process must ask for; threads that it starts later have it too
// (Linux, Documentation/arch/x86/xstate.rst).
bool request_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Bit numbers: Intel Software Developer's Manual, volume 2, CPUID; volume 1, section 13.3 for XCR0.
Processor detect_processor() {
  const CpuidLeaf basic = cpuid_leaf(1);
  const CpuidLeaf extended = cpuid_leaf(7);
  Processor processor;
  if (!has_bits(basic.ecx, {27})) return processor;  // OSXSAVE
  const uint32_t states = saved_states();
  processor.avx2 =
      has_bits(states, {1, 2}) && has_bits(basic.ecx, {12, 28, 29}) && has_bits(extended.ebx, {5, 8});
  processor.avx512 = processor.avx2 && has_bits(states, {5, 6, 7}) &&
                     has_bits(extended.ebx, {16, 17, 30, 31}) && has_bits(extended.ecx, {11});
  processor.amx =
      processor.avx512 && has_bits(states, {17, 18}) && has_bits(extended.edx, {24, 25}) && request_tiles();
  return processor;
}

#endif

struct Tables {
  std::array<const KernelTable*, 4> list{};
  size_t count = 0;

  Tables() {
    list[count++] = &kScalarTable;
#if defined(__x86_64__)
    const Processor processor = detect_processor();
    if (processor.avx2) list[count++] = &kAvx2Table;
    if (processor.avx512) list[count++] = &kAvx512Table;
    if (processor.amx) list[count++] = &kAmxTable;
#endif
  }
};

}  // namespace

size_t matmul_scratch_bytes(int /*in*/) {
  return kMatmulScratchBytes;
}

std::span<const KernelTable* const> available_kernels() {
  static const Tables tables;
  return {tables.list.data(), tables.count};
}

namespace {

// Tile registers are the only feature that may be worse than what it extends.
const KernelTable& best_table() {
  const auto tables = available_kernels();
#if defined(__x86_64__)
  if (tables.back() == &kAmxTable) return faster_table(kAvx512Table, kAmxTable);
#endif
  return *tables.back();
}

}  // namespace

const KernelTable* find_kernels(std::string_view name) {
  if (name.empty()) {
    static const KernelTable& best = best_table();
    return &best;
  }
  const auto tables = available_kernels();
  for (const KernelTable* table : tables) {
    if (table->name == name) return table;
  }
  return nullptr;
}

}  // namespace quire
