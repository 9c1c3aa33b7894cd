// The tensor types of model files. Values and block layouts: GGUF/ggml specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace quire {

// Numbered as in GGUF files.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kBF16 = 30,
  kMXFP4 = 39,
};

// A row is stored as blocks of `block_elements` values in `block_bytes` bytes.
struct TensorTypeInfo {
  TensorType type;
  std::string_view name;  // as people write it, e.g. "Q4_K"
  int block_elements;
  int block_bytes;
};

// Every type that this build can read and multiply.
[[nodiscard]] std::span<const TensorTypeInfo> tensor_types();
// nullptr for a number that this build does not know.
[[nodiscard]] const TensorTypeInfo* find_tensor_type(uint32_t number);
[[nodiscard]] const TensorTypeInfo& tensor_type_info(TensorType type);

}  // namespace quire
