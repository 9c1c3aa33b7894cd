#include "kernels/faster_table.h"

#include <gtest/gtest.h>

#include <chrono>

namespace quire {
namespace {

KernelTable waiting_table() {
  KernelTable table = *find_kernels("scalar");
  table.name = "waiting";
  table.matmul = [](const PackedMatrix&, const QuantizedRows&, int, int, ProductRows, std::byte*) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(3)) {
    }
  };
  return table;
}

TEST(FasterTable, IsTheOneThatWaitsLessWhicheverComesFirst) {
  const KernelTable waiting = waiting_table();
  KernelTable idle = waiting;
  idle.matmul = [](const PackedMatrix&, const QuantizedRows&, int, int, ProductRows, std::byte*) {};
  EXPECT_EQ(&faster_table(waiting, idle), &idle);
  EXPECT_EQ(&faster_table(idle, waiting), &idle);
}

// Every table takes the operands: buffers are large enough (with sanitizers this would stop).
TEST(FasterTable, MeasuresRealTables) {
  for (const KernelTable* table : available_kernels()) {
    EXPECT_EQ(&faster_table(*table, *table), table);
  }
}

TEST(FasterTable, TheDefaultIsATableOfThisMachine) {
  EXPECT_NE(find_kernels(find_kernels("")->name), nullptr);
  EXPECT_EQ(find_kernels(""), find_kernels(""));
}

}  // namespace
}  // namespace quire
