// Random weights in file form and what they mean, for kernel tests.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "kernels/half_float.h"
#include "kernels/packed_matrix.h"

namespace quire {

struct Field {
  int offset;
  int bytes;
};

// The bytes of a block that hold scales; the rest are codes. Empty for float types.
inline std::vector<Field> scale_fields(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ5_0:
    case TensorType::kQ8_0:
    case TensorType::kIQ4_NL:
      return {{0, 2}};
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
      return {{0, 4}};
    case TensorType::kMXFP4:
      return {{0, 1}};
    case TensorType::kQ2_K:
      return {{0, 16}, {80, 4}};
    case TensorType::kQ3_K:
      return {{96, 14}};
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return {{0, 16}};
    case TensorType::kQ6_K:
      return {{192, 18}};
    default:
      return {};
  }
}

// The f16 values among them.
inline std::vector<int> half_fields(TensorType type) {
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
    case TensorType::kF32:
    case TensorType::kBF16:
      return {};
    default:
      return {0};
  }
}

// kZeros, kOnes: no or every bit of every code (as the products see it) and multiplier is set.
enum class Codes { kRandom, kZeros, kOnes };

// A file tensor [out, in].
struct TestMatrix {
  TensorType type;
  int out;
  int in;
  std::vector<uint8_t> bytes;

  [[nodiscard]] size_t row_bytes() const { return bytes.size() / static_cast<size_t>(out); }
  [[nodiscard]] std::span<const std::byte> row(int index) const {
    return std::as_bytes(std::span(bytes)).subspan(static_cast<size_t>(index) * row_bytes(), row_bytes());
  }
  [[nodiscard]] std::vector<float> row_values(int index) const {
    std::vector<float> values(static_cast<size_t>(in));
    dequantize_row(type, row(index), values);
    return values;
  }
};

inline void set_half(uint8_t* to, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(to, &half, sizeof half);
}

inline TestMatrix make_test_matrix(TensorType type, int out, int in, uint32_t seed,
                                   Codes codes = Codes::kRandom) {
  const TensorTypeInfo& info = tensor_type_info(type);
  const auto block_bytes = static_cast<size_t>(info.block_bytes);
  const size_t blocks = static_cast<size_t>(out) * static_cast<size_t>(in / info.block_elements);
  TestMatrix matrix{type, out, in, std::vector<uint8_t>(blocks * block_bytes)};
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> scale(-0.02f, 0.02f);
  for (uint8_t& byte : matrix.bytes) {
    byte = static_cast<uint8_t>(codes == Codes::kRandom ? random() : codes == Codes::kZeros ? 0 : 255);
  }
  if (type == TensorType::kQ8_0 && codes != Codes::kRandom) {  // signed bytes are seen plus 128
    for (uint8_t& byte : matrix.bytes) byte ^= 0x80;
  }
  for (size_t b = 0; b < blocks; ++b) {
    uint8_t* block = matrix.bytes.data() + b * block_bytes;
    for (int offset : half_fields(type)) set_half(block + offset, scale(random));
    if (type == TensorType::kMXFP4) block[0] = static_cast<uint8_t>(118 + random() % 8);
    const float value = scale(random);
    if (type == TensorType::kF32) std::memcpy(block, &value, sizeof value);
    if (type == TensorType::kBF16) std::memcpy(block, reinterpret_cast<const uint8_t*>(&value) + 2, 2);
  }
  return matrix;
}

// The same scales with every code zero: what a code of 0 means.
inline TestMatrix without_codes(const TestMatrix& matrix) {
  TestMatrix plain{matrix.type, matrix.out, matrix.in, std::vector<uint8_t>(matrix.bytes.size())};
  const auto block_bytes = static_cast<size_t>(tensor_type_info(matrix.type).block_bytes);
  for (size_t block = 0; block < matrix.bytes.size(); block += block_bytes) {
    for (const Field& field : scale_fields(matrix.type)) {
      const size_t at = block + static_cast<size_t>(field.offset);
      std::memcpy(plain.bytes.data() + at, matrix.bytes.data() + at, static_cast<size_t>(field.bytes));
    }
  }
  return plain;
}

// Owns 64-byte aligned bytes of a packed matrix.
class TestPanels {
 public:
  explicit TestPanels(const TestMatrix& matrix) {
    view_ = {matrix.type, matrix.out, matrix.in, nullptr, packed_panel_bytes(matrix.type, matrix.in)};
    lines_.resize(static_cast<size_t>(view_.panels()) * view_.panel_bytes / sizeof(Line));
    auto* data = reinterpret_cast<std::byte*>(lines_.data());
    pack_panels(matrix.type, matrix.out, matrix.in, std::as_bytes(std::span(matrix.bytes)), 0, view_.panels(),
                data);
    view_.data = data;
  }
  [[nodiscard]] const PackedMatrix& view() const { return view_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
  PackedMatrix view_;
};

}  // namespace quire
