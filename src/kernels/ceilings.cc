#include "kernels/ceilings.h"

#include <array>

#include "kernels/kernel_table.h"

namespace quire {
namespace {

#if defined(__x86_64__)

// AMX adds a dot to AVX-512.
CeilingTable amx_ceilings() {
  CeilingTable table = kAvx512Ceilings;
  table.name = kAmxCeilings.name;
  table.int8_dot = kAmxCeilings.int8_dot;
  return table;
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
    static const CeilingTable amx = amx_ceilings();
    add_if(find_kernels(amx.name) != nullptr, amx);
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
