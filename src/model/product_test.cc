#include "model/product.h"

#include <gtest/gtest.h>

#include <array>

namespace quire {
namespace {

TEST(PanelShare, CutsEveryListWithoutGapOrOverlap) {
  for (auto outs : {std::array{576, 192, 192}, std::array{16, 1, 4000}, std::array{33, 33, 33}}) {
    std::array<Projection, 3> projections;
    std::array<Product, 3> products;
    for (int i = 0; i < 3; ++i) {
      projections[i].matrix = {.type = TensorType::kQ4_0,
                               .out = outs[i],
                               .in = 64,
                               .panel_bytes = static_cast<size_t>(640 * (i + 1))};
      products[i].projection = &projections[i];
    }
    for (int threads : {1, 2, 3, 8, 100}) {
      for (int index = 0; index < 3; ++index) {
        int next = 0;
        for (int thread = 0; thread < threads; ++thread) {
          PanelRange range = panel_share(products, index, {.thread = thread, .threads = threads});
          EXPECT_EQ(range.begin, next);
          EXPECT_GE(range.end, range.begin);
          next = range.end;
        }
        EXPECT_EQ(next, projections[index].matrix.panels()) << threads << " threads, product " << index;
      }
    }
  }
}

TEST(PanelShare, GivesEveryMemberAboutTheSameBytes) {
  Projection small{.matrix = {.out = 160, .in = 64, .panel_bytes = 1000}};
  Projection large{.matrix = {.out = 1600, .in = 64, .panel_bytes = 3000}};
  std::array<Product, 2> products = {Product{.projection = &small}, Product{.projection = &large}};
  for (int thread = 0; thread < 4; ++thread) {
    size_t bytes = 0;
    for (int index = 0; index < 2; ++index) {
      PanelRange range = panel_share(products, index, {.thread = thread, .threads = 4});
      bytes += static_cast<size_t>(range.end - range.begin) * products[index].projection->matrix.panel_bytes;
    }
    EXPECT_NEAR(static_cast<double>(bytes), 310000 / 4.0, 4000);
  }
}

TEST(PanelTile, KeepsATileOfOutputsInTheCache) {
  for (int rows : {1, 2, 17, 512}) {
    EXPECT_GE(panel_tile(rows), 1);
    EXPECT_LE(static_cast<size_t>(panel_tile(rows)) * kPanelRows * rows * sizeof(float), 512u << 10) << rows;
  }
}

}  // namespace
}  // namespace quire
