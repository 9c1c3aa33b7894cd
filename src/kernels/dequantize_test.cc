// dequantize_row against the values that the reference Python package `gguf` (0.17 and later) computes for
// the same pseudo-random blocks: a hash over all float32 bits, and three values to look at when it differs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/half_float.h"
#include "kernels/packed_matrix.h"

namespace quire {
namespace {

struct Expected {
  TensorType type;
  uint64_t hash;  // FNV-1a of 64 blocks
  float sample[3];
};

constexpr Expected kExpected[] = {
    {TensorType::kQ4_0, 0x54802639302d83cbULL, {0.0942077637f, 0.0628051758f, -0.0680160522f}},
    {TensorType::kQ4_1, 0x3010f3c4ea8c9605ULL, {0.238441467f, 0.0186233521f, -0.368759155f}},
    {TensorType::kQ5_0, 0xeb87622056a0f7a5ULL, {0.43963623f, -0.251220703f, -0.151031494f}},
    {TensorType::kQ5_1, 0xe945daa78f728b63ULL, {0.238441467f, 0.866493225f, -0.408149719f}},
    {TensorType::kQ8_0, 0x64263b3a2eeeaec5ULL, {-3.67410278f, -0.408233643f, 0.317871094f}},
    {TensorType::kQ2_K, 0x2a9aee98f1800c6aULL, {-0.0569534302f, -0.0911254883f, 0.0238952637f}},
    {TensorType::kQ3_K, 0xa404e9721cf84954ULL, {-0.734985352f, -1.40872192f, 0.48815918f}},
    {TensorType::kQ4_K, 0x8cc7b771fcd1515eULL, {6.58721924f, 12.8677368f, -1.93164062f}},
    {TensorType::kQ5_K, 0xee4597d77bae8bcfULL, {26.6848755f, 11.6116333f, 26.0180664f}},
    {TensorType::kQ6_K, 0x5140c4319ed929f8ULL, {-82.4337158f, 137.389526f, 27.9777832f}},
    {TensorType::kIQ4_NL, 0x87bbddc7c86ac3d1ULL, {1.19329834f, 0.785064697f, -0.938621521f}},
    {TensorType::kMXFP4, 0x7c7c3033a56a334eULL, {2.98023224e-08f, 0.0f, 33554432.0f}},
    {TensorType::kF16, 0xf1f7e615b04fa379ULL, {0.0314025879f, -0.0513305664f, -0.0494995117f}},
    {TensorType::kBF16, 0xa0bcc516f242c629ULL, {0.129882812f, -0.28515625f, -0.208984375f}},
};

// Offsets of the f16 scales that are made finite and normal; other bytes stay random.
std::vector<size_t> half_offsets(TensorType type) {
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return {0, 2};
    case TensorType::kQ2_K:
      return {80, 82};
    case TensorType::kQ3_K:
      return {108};
    case TensorType::kQ6_K:
      return {208};
    case TensorType::kMXFP4:
    case TensorType::kBF16:
      return {};
    default:
      return {0};
  }
}

std::vector<uint8_t> random_blocks(TensorType type, size_t blocks) {
  const auto block_bytes = static_cast<size_t>(tensor_type_info(type).block_bytes);
  std::vector<uint8_t> bytes(blocks * block_bytes);
  uint32_t state = 12345;
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  for (size_t b = 0; b < blocks; ++b) {
    uint8_t* block = bytes.data() + b * block_bytes;
    for (size_t offset : half_offsets(type)) {
      uint8_t& high = block[offset + 1];
      high = static_cast<uint8_t>((high & 0x83) | 0x20 | (high & 4) << 1);
    }
    if (type == TensorType::kMXFP4) block[0] = static_cast<uint8_t>(96 + (block[0] & 63));
    if (type == TensorType::kBF16) block[1] = static_cast<uint8_t>((block[1] & 0x81) | 0x3e);
  }
  return bytes;
}

TEST(DequantizeRow, EqualsTheReferencePackage) {
  for (const Expected& expected : kExpected) {
    const TensorTypeInfo& info = tensor_type_info(expected.type);
    const auto blocks = random_blocks(expected.type, 64);
    std::vector<float> values(static_cast<size_t>(64 * info.block_elements));
    dequantize_row(expected.type, std::as_bytes(std::span(blocks)), values);
    uint64_t hash = 0xcbf29ce484222325u;
    for (float value : values) {
      value += 0.0f;  // one zero
      uint8_t bytes[4];
      std::memcpy(bytes, &value, 4);
      for (uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
    }
    EXPECT_EQ(values[0], expected.sample[0]) << info.name;
    EXPECT_EQ(values[17], expected.sample[1]) << info.name;
    EXPECT_EQ(values.back(), expected.sample[2]) << info.name;
    EXPECT_EQ(hash, expected.hash) << info.name;
  }
}

TEST(DequantizeRow, EndsOfTheExponentRange) {
  // MXFP4: 2^(e - 127) * 0.5 with e from 0 (a subnormal) to 255.
  std::vector<uint8_t> block(17, 0x11);
  std::vector<float> values(32);
  for (int e : {0, 1, 2, 254}) {
    block[0] = static_cast<uint8_t>(e);
    dequantize_row(TensorType::kMXFP4, std::as_bytes(std::span(block)), values);
    EXPECT_EQ(values[0], std::ldexp(1.0f, e - 128)) << e;
  }
}

TEST(DequantizeRow, CopiesFloats) {
  const std::vector<float> from = {1.5f, -0.0f, INFINITY, 1e-45f, 3.0f};
  std::vector<float> to(from.size());
  dequantize_row(TensorType::kF32, std::as_bytes(std::span(from)), to);
  EXPECT_EQ(std::memcmp(from.data(), to.data(), from.size() * sizeof(float)), 0);
}

TEST(HalfFloat, RoundTripsEveryFiniteValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if ((half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    const int exponent = half >> 10 & 31;
    const double mantissa = half & 0x3ff;
    const double expected = exponent == 31  ? INFINITY
                            : exponent == 0 ? std::ldexp(mantissa, -24)
                                            : std::ldexp(1024 + mantissa, exponent - 25);
    EXPECT_EQ(std::abs(value), expected);
    EXPECT_EQ(std::signbit(value), (half & 0x8000) != 0);
    EXPECT_EQ(f32_to_f16(value), half);
  }
}

TEST(HalfFloat, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits + 1 < 0x7c00; ++bits) {  // between each pair of positive neighbours
    const float low = f16_to_f32(static_cast<uint16_t>(bits));
    const float high = f16_to_f32(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(f32_to_f16(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(f32_to_f16(-std::nextafter(middle, INFINITY)), 0x8000u | (bits + 1));
  }
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-INFINITY), 0xfc00);
  EXPECT_EQ(f32_to_f16(NAN) & 0x7e00, 0x7e00);
}

}  // namespace
}  // namespace quire
