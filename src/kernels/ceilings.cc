#include "kernels/ceilings.h"

#include <array>

#include "kernels/kernel_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire {
namespace {

#if defined(__x86_64__)

// AMX-TILE and AMX-INT8, tile registers that the system saves, and its permission to use them. Bit numbers:
// Intel Software Developer's Manual, volume 2, CPUID; volume 1, section 13.3.
bool may_use_tiles() {
  constexpr unsigned kOsxsave = 1u << 27;
  constexpr unsigned kTileAndInt8 = 3u << 24;
  constexpr unsigned kTileStates = 3u << 17;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  unsigned eax, ebx, ecx, edx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & kOsxsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kTileAndInt8) != kTileAndInt8)
    return false;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileStates) != kTileStates) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#endif

struct Tables {
  std::array<const CeilingTable*, 4> list{};
  size_t count = 0;

  Tables() {
    add_if(true, kScalarCeilings);
#if defined(__x86_64__)
    add_if(find_kernels(kAvx2Ceilings.name) != nullptr, kAvx2Ceilings);
    add_if(find_kernels(kAvx512Ceilings.name) != nullptr, kAvx512Ceilings);
    add_if(may_use_tiles(), kAmxCeilings);
#endif
  }
  void add_if(bool runs_here, const CeilingTable& table) {
    if (runs_here) list[count++] = &table;
  }
};

}  // namespace

std::span<const CeilingTable* const> available_ceilings() {
  static const Tables tables;
  return {tables.list.data(), tables.count};
}

const CeilingTable* find_ceilings(std::string_view name) {
  for (const CeilingTable* table : available_ceilings()) {
    if (table->name == name) return table;
  }
  return nullptr;
}

}  // namespace quire
