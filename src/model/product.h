// Matrix products of a step, shared over the threads of the pool.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "model/activation_rows.h"
#include "model/weights.h"

namespace quire {

// y = W x + bias for all rows of x.
struct Product {
  const Projection* projection = nullptr;
  ActivationForm form = ActivationForm::kInt8;
  ProductRows y;
};

// One member of the team that computes a list of products.
struct ProductShare {
  int thread = 0;
  int threads = 1;
};

struct PanelRange {
  int begin = 0;
  int end = 0;
};

// The panels of products[index] that are this member's. Panels of all products count as one list, cut into
// parts of equal bytes: products of different types may stand in it.
[[nodiscard]] PanelRange panel_share(std::span<const Product> products, int index, const ProductShare& share);

// Panels that are computed in one go, so that what the next operation reads is still in the L2 cache.
[[nodiscard]] int panel_tile(int rows);

// Panels of all products in the member's share.
[[nodiscard]] int64_t panels_in_share(std::span<const Product> products, const ProductShare& share);

// The product's panels in `range`. A row's bits depend on the row alone. `kernel_scratch`: the calling
// thread's own, matmul_scratch_bytes() of the widest input.
void multiply(const KernelTable& kernels, const Product& product, const ActivationRows& x, PanelRange range,
              std::byte* kernel_scratch);

// A piece of a member's share: `piece` counts the panels of panels_in_share().
void multiply_piece(const KernelTable& kernels, std::span<const Product> products, const ActivationRows& x,
                    Share piece, const ProductShare& share, std::byte* kernel_scratch);

}  // namespace quire
