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
    for (int row = 0; row < rows; ++row) copy_row(from, first + row, view_, row);
  }

  static void copy_row(const QuantizedRows& from, int row, const QuantizedRows& to, int to_row) {
    const GroupPlaces places = from.places(row);
    const GroupPlaces to_places = to.places(to_row);
    for (int g = 0; g < from.in / kGroup; ++g) {
      std::copy_n(from.codes + kGroup * places[g], kGroup, to.codes + kGroup * to_places[g]);
      to.scales[to_places[g]] = from.scales[places[g]];
      to.sums[to_places[g]] = from.sums[places[g]];
    }
  }

  // Any codes, code_at(row * in + k), with the scales and sums that belong to them.
  template <class Code>
  void fill(Code code_at) {
    const auto groups = static_cast<size_t>(view_.in / kGroup);
    for (size_t i = 0; i < scales_.size(); ++i) {
      const size_t at = view_.places(static_cast<int>(i / groups))[static_cast<int>(i % groups)];
      int sums[2] = {};
      for (size_t k = 0; k < kGroup; ++k) {
        const int code = code_at(i * kGroup + k);
        codes_[at * kGroup + k] = static_cast<int8_t>(code);
        sums[k / 16] += code;
      }
      scales_[at] = 0.001f * static_cast<float>(1 + i % 7);
      sums_[at] = {static_cast<int16_t>(sums[0]), static_cast<int16_t>(sums[1]),
                   scales_[at] * static_cast<float>(sums[0] + sums[1])};
    }
  }
  void fill_random(uint32_t seed) {
    std::mt19937 random(seed);
    fill([&](size_t) { return static_cast<int>(random() % 255) - 127; });
  }

  [[nodiscard]] const QuantizedRows& view() const { return view_; }
  [[nodiscard]] double value(int row, int k) const {
    const size_t at = view_.places(row)[k / kGroup];
    return static_cast<double>(scales_[at]) * codes_[at * kGroup + static_cast<size_t>(k % kGroup)];
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
