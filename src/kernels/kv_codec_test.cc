// What is written into a block: errors within the codec's bounds, the same bytes by every ISA, one token's
// bytes only; and inputs that no model should make.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/kernel_table.h"
#include "kernels/kv_reference.h"

namespace quire {
namespace {

constexpr KvType kAllTypes[] = {KvType::kF32, KvType::kF16,  KvType::kBF16,
                                KvType::kFp8, KvType::kInt8, KvType::kInt4};
constexpr int kBlock = 40;  // 3 tiles, the last one half empty

// One block of two heads; the second is used.
class OneBlock {
 public:
  OneBlock(KvType type, int key_dim, int value_dim)
      : head_bytes_(kv_head_bytes(type, kBlock, key_dim, value_dim)), memory_(2 * head_bytes_) {
    kv_ = {memory_.data(), 2 * head_bytes_, head_bytes_, kBlock, 2, key_dim, value_dim, type};
  }

  void write(const KernelTable& table, int slot, const std::vector<float>& key,
             const std::vector<float>& value) {
    table.attention.write_kv(kv_, BlockId{0}, slot, 1, key.data(), value.data());
  }
  std::vector<double> key(int slot) const { return KvReference(kv_, slice()).key(slot); }
  std::vector<double> value(int slot) const { return KvReference(kv_, slice()).value(slot); }
  const std::byte* slice() const { return memory_.data() + head_bytes_; }
  size_t bytes() const { return head_bytes_; }
  const KvLayerView& view() const { return kv_; }
  bool first_head_is_untouched() const {
    return std::all_of(memory_.data(), memory_.data() + head_bytes_,
                       [](std::byte b) { return b == std::byte{0xff}; });
  }

 private:
  size_t head_bytes_;
  GuardedBuffer<std::byte> memory_;
  KvLayerView kv_;
};

// Rounding up of a scale, and of float32 along the way.
constexpr double kScaleSlack = 1 + 0x1p-9;

// The largest error of a value; for int4 the largest 2-norm of the error of all.
void expect_close(KvType type, const std::vector<float>& x, const std::vector<double>& read, bool is_key) {
  ASSERT_EQ(x.size(), read.size());
  std::vector<double> exact(x.begin(), x.end());
  const double low = *std::min_element(exact.begin(), exact.end());
  const double high = *std::max_element(exact.begin(), exact.end());
  const double largest = std::max(high, -low);
  if (type == KvType::kInt4) {
    // A scale whose levels reach the largest value is at most an eighth too large, and half the widest gap
    // between levels is then the largest error; the scale that is chosen is not worse.
    std::vector<double> rotated = exact;
    KvReference::rotate(rotated);
    double most = 0, error = 0;
    for (double v : rotated) most = std::max(most, std::abs(v));
    const double half_gap = is_key ? (122.5 - 101.5) / 2 / 122.5 : (114.5 - 86.5) / 2 / 114.5;
    const double bound = std::sqrt(static_cast<double>(x.size())) * half_gap * most * 1.125;
    for (size_t i = 0; i < x.size(); ++i) error += (read[i] - exact[i]) * (read[i] - exact[i]);
    EXPECT_LE(std::sqrt(error), bound * (1 + 1e-4) + 1e-6 * largest + 1e-6);
    return;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double size = std::abs(exact[i]);
    double bound = 0;
    if (type == KvType::kF16) bound = std::max(size * 0x1p-11, 0x1p-25);
    if (type == KvType::kBF16) bound = size * 0x1p-8;
    if (type == KvType::kFp8) bound = std::max(size * 0x1p-4, largest / 448 * 0x1p-10) * kScaleSlack + 1e-7;
    // The minimum may lie a float16 step below the smallest value, which widens the range.
    if (type == KvType::kInt8)
      bound = (high - low + std::abs(low) * 0x1p-10) / 510 * kScaleSlack + 1e-6 * largest + 1e-7;
    EXPECT_NEAR(read[i], exact[i], bound) << kv_type_name(type) << " " << i;
  }
}

std::vector<float> random_row(std::mt19937& random, int n, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

TEST(KvCodec, ErrorsStayWithinTheBounds) {
  std::mt19937 random(1);
  const int dims[][2] = {{64, 64}, {128, 128}, {80, 96}, {7, 33}, {1, 1}, {256, 256}, {20, 18}};
  for (KvType type : kAllTypes) {
    for (const auto& [key_dim, value_dim] : dims) {
      OneBlock block(type, key_dim, value_dim);
      for (int slot : {0, 3, 15, 16, 39}) {
        std::vector<float> key = random_row(random, key_dim, 1.5f);
        std::vector<float> value = random_row(random, value_dim, 0.2f);
        key[static_cast<size_t>(slot) % key.size()] += 60;  // as Qwen2's biases do
        if (slot == 16) {
          for (float& v : value) v += 3;
        }
        block.write(*find_kernels("scalar"), slot, key, value);
        SCOPED_TRACE(testing::Message() << kv_type_name(type) << " " << key_dim << " slot " << slot);
        expect_close(type, key, block.key(slot), true);
        expect_close(type, value, block.value(slot), false);
      }
    }
  }
}

TEST(KvCodec, EveryIsaWritesTheSameBytesAndOnlyTheTokens) {
  std::mt19937 random(2);
  const int dims[][2] = {{64, 64}, {20, 18}, {7, 33}};
  for (KvType type : kAllTypes) {
    for (const auto& [key_dim, value_dim] : dims) {
      std::vector<std::vector<float>> keys, values;
      for (int slot = 0; slot < kBlock; ++slot) {
        keys.push_back(random_row(random, key_dim, 2));
        values.push_back(random_row(random, value_dim, 2));
      }
      std::vector<std::byte> expected;
      for (const KernelTable* table : all_tested_kernels()) {
        OneBlock block(type, key_dim, value_dim);
        std::vector<int> slots(kBlock);
        for (int slot = 0; slot < kBlock; ++slot) slots[static_cast<size_t>(slot)] = slot;
        if (table->name != "scalar") std::shuffle(slots.begin(), slots.end(), random);
        for (int slot : slots) {
          block.write(*table, slot, keys[static_cast<size_t>(slot)], values[static_cast<size_t>(slot)]);
        }
        EXPECT_TRUE(block.first_head_is_untouched());
        EXPECT_EQ(KvReference(block.view(), block.slice()).bytes(), block.bytes());
        std::vector<std::byte> written(block.slice(), block.slice() + block.bytes());
        if (expected.empty()) expected = written;
        EXPECT_EQ(written, expected) << table->name << " " << kv_type_name(type) << " " << key_dim;
      }
    }
  }
}

TEST(KvCodec, WritingATokenLeavesTheOthersAlone) {
  std::mt19937 random(3);
  for (KvType type : kAllTypes) {
    OneBlock block(type, 20, 18);
    for (int slot = 0; slot < kBlock; ++slot) {
      block.write(*find_kernels(""), slot, random_row(random, 20, 1), random_row(random, 18, 1));
    }
    std::vector<std::vector<double>> before;
    for (int slot = 0; slot < kBlock; ++slot)
      before.push_back(block.key(slot)), before.push_back(block.value(slot));
    block.write(*find_kernels(""), 17, random_row(random, 20, 100), random_row(random, 18, 100));
    for (int slot = 0; slot < kBlock; ++slot) {
      if (slot == 17) continue;
      EXPECT_EQ(block.key(slot), before[2 * static_cast<size_t>(slot)]);
      EXPECT_EQ(block.value(slot), before[2 * static_cast<size_t>(slot) + 1]);
    }
  }
}

TEST(KvCodec, OddInputsNeitherCrashNorLeak) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float odd[] = {std::nanf(""), kInf, -kInf, 3e38f, -3e38f, 1e-40f, -1e-40f, 0.0f, -0.0f, 7e4f, 1e-8f};
  std::mt19937 random(4);
  for (KvType type : kAllTypes) {
    for (const KernelTable* table : all_tested_kernels()) {
      OneBlock block(type, 64, 64);
      const std::vector<float> plain = random_row(random, 64, 1);
      for (float x : odd) {
        std::vector<float> row = plain;
        row[5] = x;
        block.write(*table, 4, plain, plain);
        const std::vector<double> neighbour = block.key(4);
        block.write(*table, 5, row, row);
        block.write(*table, 6, std::vector<float>(64, x), std::vector<float>(64, x));
        EXPECT_EQ(block.key(4), neighbour);
        if (std::isnan(x)) {
          EXPECT_TRUE(std::isnan(block.key(5)[5]) && std::isnan(block.value(5)[5])) << kv_type_name(type);
        }
        if (std::abs(x) < 1e30f && kv_has_scales(type)) {
          for (double v : block.key(6)) EXPECT_TRUE(std::isfinite(v)) << kv_type_name(type) << " " << x;
          for (double v : block.value(5)) EXPECT_TRUE(std::isfinite(v)) << kv_type_name(type) << " " << x;
        }
        if (x == 0) {
          for (double v : block.key(6)) EXPECT_EQ(v, 0) << kv_type_name(type);
        }
      }
    }
  }
}

double squared_distance(const std::vector<float>& x, const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sum;
}

// The squared error of the best among all scales of a byte.
double least_error(const std::vector<float>& x, bool is_key) {
  std::vector<double> rotated(x.begin(), x.end());
  KvReference::rotate(rotated);
  // A row is stored times a power of two, which a scale of a byte can follow.
  double least = std::numeric_limits<double>::infinity();
  for (int byte = 8; byte < 255; ++byte) {
    double unit = std::ldexp(8 + byte % 8, byte / 8 - 27);
    if ((std::ilogb(static_cast<double>(x.size())) & 1) != 0) unit /= std::sqrt(2.0);
    double error = 0;
    for (double v : rotated) {
      double nearest = std::numeric_limits<double>::infinity();
      for (int level = 0; level < 16; ++level) {
        const double at = is_key ? KvReference::key_level(level) : KvReference::value_level(level);
        nearest = std::min(nearest, std::abs((is_key ? std::abs(v) : v) - at * unit));
      }
      error += nearest * nearest;
    }
    least = std::min(least, error);
  }
  return least;
}

// Also for rows with heavy tails, and one value far from the others before or after rotation.
TEST(KvCodec, Int4TakesAboutTheClosestScale) {
  std::mt19937 random(5);
  for (int dim : {16, 32, 64, 128, 256}) {
    OneBlock block(KvType::kInt4, dim, dim);
    double key_error = 0, value_error = 0, key_least = 0, value_least = 0;
    for (int i = 0; i < 40; ++i) {
      std::vector<float> x = random_row(random, dim, 1);
      for (float& v : x) {
        if (i % 4 == 1) v = v * v * v;
        if (i % 4 == 3) v += 4;
      }
      if (i % 4 == 2) x[3] += 20;
      block.write(*find_kernels(""), 0, x, x);
      key_error += squared_distance(x, block.key(0));
      value_error += squared_distance(x, block.value(0));
      key_least += least_error(x, true);
      value_least += least_error(x, false);
    }
    EXPECT_LT(key_error, 1.02 * key_least) << dim;
    EXPECT_LT(value_error, 1.02 * value_least) << dim;
  }
}

// Panter and Dite: N levels that are right for a Gaussian of variance 1 leave sqrt(3) pi / 2 / N^2 or less.
TEST(KvCodec, Int4IsCloseForWhatRotationMakes) {
  std::mt19937 random(6);
  for (int dim : {64, 128, 256}) {
    OneBlock block(KvType::kInt4, dim, dim);
    double key_error = 0, value_error = 0, size = 0;
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> x = random_row(random, dim, 1.7f);
      block.write(*find_kernels(""), 0, x, x);
      key_error += squared_distance(x, block.key(0));
      value_error += squared_distance(x, block.value(0));
      size += squared_distance(x, std::vector<double>(x.size()));
    }
    const double one_level = std::sqrt(3.0) * std::numbers::pi / 2;
    EXPECT_LT(key_error / size, one_level / (32 * 32)) << dim;
    EXPECT_LT(value_error / size, one_level / (16 * 16)) << dim;
  }
}

TEST(KvCodec, HoldsMoreTokensThanF16) {
  for (int dim : {64, 128, 256}) {
    const auto bytes = [dim](KvType type) { return static_cast<double>(kv_head_bytes(type, 32, dim, dim)); };
    EXPECT_GE(bytes(KvType::kF16) / bytes(KvType::kFp8), 1.9) << dim;
    EXPECT_GE(bytes(KvType::kF16) / bytes(KvType::kInt8), 1.85) << dim;
    EXPECT_GE(bytes(KvType::kF16) / bytes(KvType::kInt4), 3.4) << dim;
    // 5 bits, 4 bits and two scales of a byte.
    EXPECT_EQ(kv_head_bytes(KvType::kInt4, 32, dim, dim),
              (static_cast<size_t>(32 * (dim * 9 / 8 + 2)) + 63) / 64 * 64);
    EXPECT_EQ(bytes(KvType::kF16), bytes(KvType::kBF16));
  }
}

}  // namespace
}  // namespace quire
