// Quantised activations with memory of their own, for kernel tests.
#pragma once

#include <random>
#include <vector>

#include "kernels/guarded_buffer.h"
#include "kernels/kernel_table.h"

namespace quire {

// Arrays that end at an unmapped page.
class TestRows {
 public:
  TestRows(int rows, int in)
      : codes_(static_cast<size_t>(rows) * static_cast<size_t>(in)),
        scales_(codes_.size() / kGroup),
        sums_(codes_.size() / kGroup),
        view_{rows, in, codes_.data(), scales_.data(), sums_.data()} {}

  // Rows that another matrix of rows holds from `first` on.
  TestRows(const QuantizedRows& from, int first, int rows) : TestRows(rows, from.in) {
    const size_t skip = static_cast<size_t>(first) * static_cast<size_t>(from.in);
    std::copy_n(from.codes + skip, codes_.size(), codes_.data());
    std::copy_n(from.scales + skip / kGroup, scales_.size(), scales_.data());
    std::copy_n(from.sums + skip / kGroup, sums_.size(), sums_.data());
  }

  // Any codes with the scales and sums that belong to them.
  template <class Code>
  void fill(Code code_at) {
    for (size_t g = 0; g < scales_.size(); ++g) {
      int sums[2] = {};
      for (size_t k = 0; k < kGroup; ++k) {
        const int code = code_at(g * kGroup + k);
        codes_[g * kGroup + k] = static_cast<int8_t>(code);
        sums[k / 16] += code;
      }
      scales_[g] = 0.001f * static_cast<float>(1 + g % 7);
      sums_[g] = {static_cast<int16_t>(sums[0]), static_cast<int16_t>(sums[1]),
                  scales_[g] * static_cast<float>(sums[0] + sums[1])};
    }
  }
  void fill_random(uint32_t seed) {
    std::mt19937 random(seed);
    fill([&](size_t) { return static_cast<int>(random() % 255) - 127; });
  }

  [[nodiscard]] const QuantizedRows& view() const { return view_; }
  [[nodiscard]] double value(int row, int k) const {
    const size_t at = static_cast<size_t>(row) * static_cast<size_t>(view_.in) + static_cast<size_t>(k);
    return static_cast<double>(scales_[at / kGroup]) * codes_[at];
  }

 private:
  GuardedBuffer<int8_t> codes_;
  GuardedBuffer<float> scales_;
  GuardedBuffer<GroupSums> sums_;
  QuantizedRows view_;
};

// A kernel's scratch that ends at an unmapped page.
class TestScratch {
 public:
  explicit TestScratch(int in) : bytes_(matmul_scratch_bytes(in)) {}
  std::byte* data() { return bytes_.data(); }

 private:
  GuardedBuffer<std::byte> bytes_;
};

}  // namespace quire
