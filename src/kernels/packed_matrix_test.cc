#include "kernels/packed_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/test_matrix.h"

namespace quire {
namespace {

// Packed weights are what decode reads: they may be at most 6 % larger than the file's.
TEST(PackedMatrix, StaysCompact) {
  for (const TensorTypeInfo& info : tensor_types()) {
    const int in = 4096;
    const size_t file_bytes = static_cast<size_t>(kPanelRows * in / info.block_elements * info.block_bytes);
    const size_t packed_bytes = packed_panel_bytes(info.type, in);
    EXPECT_LE(packed_bytes * 100, file_bytes * 106) << info.name;
    EXPECT_GE(packed_bytes, file_bytes) << info.name;
  }
  EXPECT_EQ(packed_panel_bytes(TensorType::kQ4_1, 4096), size_t{16 * 128 * 20});
}

TEST(PackedMatrix, PanelsAreWholeCacheLines) {
  for (const TensorTypeInfo& info : tensor_types()) {
    for (int blocks : {1, 2, 3, 7}) {
      EXPECT_EQ(packed_panel_bytes(info.type, blocks * info.block_elements) % 64, 0U) << info.name;
    }
  }
}

// Panels packed one by one, in any order, are the whole; nothing outside the range is written.
TEST(PackPanels, RangesAreIndependent) {
  for (const TensorTypeInfo& info : tensor_types()) {
    const int in = 2 * info.block_elements;
    const TestMatrix matrix = make_test_matrix(info.type, 50, in, 1);
    const TestPanels whole(matrix);
    const size_t panel_bytes = whole.view().panel_bytes;
    std::vector<std::byte> packed(4 * panel_bytes, std::byte{0xa5});
    const auto source = std::as_bytes(std::span(matrix.bytes));
    pack_panels(info.type, 50, in, source, 3, 4, packed.data());
    pack_panels(info.type, 50, in, source, 1, 2, packed.data());
    for (size_t i = 0; i < packed.size(); ++i) {
      const bool is_done = i / panel_bytes == 1 || i / panel_bytes == 3;
      ASSERT_EQ(packed[i], is_done ? whole.view().data[i] : std::byte{0xa5}) << info.name << " byte " << i;
    }
  }
}

TEST(PackPanels, RefusesASourceThatIsTooShort) {
  std::vector<std::byte> source(18 * 3);
  std::vector<std::byte> packed(packed_panel_bytes(TensorType::kQ4_0, 32));
  EXPECT_DEATH(pack_panels(TensorType::kQ4_0, 4, 32, source, 0, 1, packed.data()), "source");
}

}  // namespace
}  // namespace quire
