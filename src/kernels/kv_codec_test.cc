// What is written into a block: errors within the codec's bounds, the same bytes by every ISA, one token's
// bytes only; and inputs that no model should make.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/emulated_tables.h"
#include "kernels/guarded_buffer.h"
#include "kernels/kernel_table.h"
#include "kernels/kv_reference.h"

namespace quire {
namespace {

// Every type, and K and V of different ones.
std::vector<KvTypes> all_types() {
  std::vector<KvTypes> all{KvType::kF32, KvType::kF16,  KvType::kBF16,
                           KvType::kFp8, KvType::kInt8, KvType::kInt4};
  for (KvType key : {KvType::kInt8, KvType::kInt4, KvType::kFp8}) {
    for (KvType value : {KvType::kInt4, KvType::kInt8}) {
      if (key != value) all.push_back(mixed(key, value));
    }
  }
  return all;
}

std::string name_of(KvTypes types) {
  return std::string(kv_type_name(types.key)) + "/" + std::string(kv_type_name(types.value));
}

constexpr int kBlock = 40;  // 3 tiles, the last one half empty

// One block of two heads; the second is used.
class OneBlock {
 public:
  OneBlock(KvTypes type, int key_dim, int value_dim)
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

struct Row {
  double low = 0, high = 0;  // with 0
};

Row range_of(const std::vector<double>& x, size_t begin, size_t end) {
  Row r;
  for (size_t i = begin; i < end; ++i) r = {std::min(r.low, x[i]), std::max(r.high, x[i])};
  return r;
}

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
    std::vector<double> rotated = exact;
    KvReference::rotate(rotated);
    const size_t group = is_key ? 32 : rotated.size();
    double bound = 0, error = 0;
    for (size_t begin = 0; begin < rotated.size(); begin += group) {
      const size_t end = std::min(rotated.size(), begin + group);
      const Row r = range_of(rotated, begin, end);
      const double step = (r.high - r.low) / 15 * kScaleSlack;
      bound += static_cast<double>(end - begin) * step * step * (0.5 + 1.0 / 32) * (0.5 + 1.0 / 32);
    }
    for (size_t i = 0; i < x.size(); ++i) error += (read[i] - exact[i]) * (read[i] - exact[i]);
    EXPECT_LE(std::sqrt(error), std::sqrt(bound) * (1 + 1e-4) + 1e-6 * largest + 1e-6);
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
  for (KvTypes type : all_types()) {
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
        SCOPED_TRACE(testing::Message() << name_of(type) << " " << key_dim << " slot " << slot);
        expect_close(type.key, key, block.key(slot), true);
        expect_close(type.value, value, block.value(slot), false);
      }
    }
  }
}

TEST(KvCodec, EveryIsaWritesTheSameBytesAndOnlyTheTokens) {
  std::mt19937 random(2);
  const int dims[][2] = {{64, 64}, {20, 18}, {7, 33}};
  for (KvTypes type : all_types()) {
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
        EXPECT_EQ(written, expected) << table->name << " " << name_of(type) << " " << key_dim;
      }
    }
  }
}

TEST(KvCodec, WritingATokenLeavesTheOthersAlone) {
  std::mt19937 random(3);
  for (KvTypes type : all_types()) {
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
  for (KvTypes type : all_types()) {
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
          EXPECT_TRUE(std::isnan(block.key(5)[5]) && std::isnan(block.value(5)[5])) << name_of(type);
        }
        if (std::abs(x) < 1e30f && kv_has_scales(type.key)) {
          for (double v : block.key(6)) EXPECT_TRUE(std::isfinite(v)) << name_of(type) << " " << x;
          for (double v : block.value(5)) EXPECT_TRUE(std::isfinite(v)) << name_of(type) << " " << x;
        }
        if (x == 0) {
          for (double v : block.key(6)) EXPECT_EQ(v, 0) << name_of(type);
        }
      }
    }
  }
}

// The squared error of codes that span the whole range of a group, with scales as exact as double.
double whole_range_error(const std::vector<float>& x, size_t group) {
  std::vector<double> rotated(x.begin(), x.end());
  KvReference::rotate(rotated);
  double error = 0;
  for (size_t begin = 0; begin < rotated.size(); begin += group) {
    const size_t end = std::min(rotated.size(), begin + group);
    const Row r = range_of(rotated, begin, end);
    const double scale = (r.high - r.low) / 15;
    const double zero = std::nearbyint(-r.low / scale * 16) / 16;
    for (size_t i = begin; i < end; ++i) {
      const double code = std::clamp(std::nearbyint(rotated[i] / scale + zero), 0.0, 15.0);
      error += std::pow(rotated[i] - (code - zero) * scale, 2);
    }
  }
  return error;
}

double squared_distance(const std::vector<float>& x, const std::vector<double>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sum;
}

// int4 cuts off what makes the rest too coarse.
TEST(KvCodec, Int4IsCloserThanCodesOfTheWholeRange) {
  std::mt19937 random(5);
  for (int dim : {32, 64, 128, 256}) {
    OneBlock block(KvType::kInt4, dim, dim);
    double key_error = 0, value_error = 0, key_whole = 0, value_whole = 0;
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> key = random_row(random, dim, 1);
      const std::vector<float> value = random_row(random, dim, 1);
      block.write(*find_kernels(""), 0, key, value);
      key_error += squared_distance(key, block.key(0));
      value_error += squared_distance(value, block.value(0));
      key_whole += whole_range_error(key, 32);
      value_whole += whole_range_error(value, value.size());
    }
    EXPECT_LT(key_error, 0.92 * key_whole) << dim;
    EXPECT_LT(value_error, 0.92 * value_whole) << dim;
  }
}

TEST(KvCodec, AMixtureTakesTheBytesOfItsParts) {
  for (int dim : {64, 128, 256, 7}) {
    const auto layout = [dim](KvTypes types) { return kv_layout(types, 32, dim, dim); };
    for (KvTypes types : all_types()) {
      const KvLayout both = layout(types), key = layout(types.key), value = layout(types.value);
      EXPECT_EQ(both.key_tile_bytes, key.key_tile_bytes);
      EXPECT_EQ(both.key_scales, key.key_scales);
      EXPECT_EQ(both.values, key.values);
      EXPECT_EQ(both.value_row_bytes, value.value_row_bytes);
      EXPECT_EQ(both.value_scales - both.values, value.value_scales - value.values);
    }
  }
  EXPECT_EQ(kv_head_bytes(mixed(KvType::kInt8, KvType::kInt4), 32, 64, 64),
            size_t{32 * (64 + 4 + 32 + 3)} + 32);
}

TEST(KvCodec, HoldsMoreTokensThanF16) {
  for (int dim : {64, 128, 256}) {
    const auto bytes = [dim](KvType type) { return static_cast<double>(kv_head_bytes(type, 32, dim, dim)); };
    EXPECT_GE(bytes(KvType::kF16) / bytes(KvType::kFp8), 1.9) << dim;
    EXPECT_GE(bytes(KvType::kF16) / bytes(KvType::kInt8), 1.85) << dim;
    EXPECT_GE(bytes(KvType::kF16) / bytes(KvType::kInt4), 3.4) << dim;
    EXPECT_EQ(bytes(KvType::kF16), bytes(KvType::kBF16));
  }
}

}  // namespace
}  // namespace quire
