#include "kernels/kernel_table.h"

#include <array>

#include "kernels/isa_tables.h"
#include "kernels/matmul_scratch.h"

#if defined(__x86_64__)
#include <cpuid.h>
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
};

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
  return processor;
}

#endif

struct Tables {
  std::array<const KernelTable*, 3> list{};
  size_t count = 0;

  Tables() {
    list[count++] = &kScalarTable;
#if defined(__x86_64__)
    const Processor processor = detect_processor();
    if (processor.avx2) list[count++] = &kAvx2Table;
    if (processor.avx512) list[count++] = &kAvx512Table;
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

const KernelTable* find_kernels(std::string_view name) {
  const auto tables = available_kernels();
  if (name.empty()) return tables.back();
  for (const KernelTable* table : tables) {
    if (table->name == name) return table;
  }
  return nullptr;
}

}  // namespace quire
