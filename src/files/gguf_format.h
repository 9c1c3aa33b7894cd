// Constants of the GGUF format and the limits that this reader sets to hostile files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "files/gguf_file.h"

namespace quire {

// Value types as files number them. The alternatives of GgufValue and of GgufArray::elements stand in this
// order, so a variant's index is its type number.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
inline constexpr uint32_t kGgufTypeCount = 13;
static_assert(std::variant_size_v<GgufValue> == kGgufTypeCount);
static_assert(std::variant_size_v<decltype(GgufArray::elements)> == kGgufTypeCount);

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr uint32_t kGgufVersionMin = 2;
inline constexpr uint32_t kGgufVersionMax = 3;
inline constexpr uint64_t kGgufAlignmentDefault = 32;

// Limits of the specification.
inline constexpr uint64_t kGgufKeyBytesMax = 65535;
inline constexpr uint64_t kGgufTensorNameBytesMax = 64;
inline constexpr uint32_t kGgufDimensionsMax = 4;
inline constexpr uint64_t kGgufAlignmentMin = 8;  // "must be a multiple of 8"

// Limits of ours, far above any real file; they bound memory for sparse files of absurd size.
inline constexpr uint64_t kGgufMetadataCountMax = 1u << 16;
inline constexpr uint64_t kGgufTensorCountMax = 1u << 20;
inline constexpr uint64_t kGgufArrayElementsMax = 1u << 26;
inline constexpr uint64_t kGgufStringBytesMax = 1u << 30;
inline constexpr uint64_t kGgufAlignmentMax = 1u << 20;
inline constexpr int kGgufArrayDepthMax = 4;
inline constexpr int64_t kGgufPartsMax = 1024;

// "uint32", "array", …; `number` < kGgufTypeCount.
[[nodiscard]] std::string_view gguf_type_name(uint32_t number);
// Type and value for error messages, e.g. "string \"llama\"", "uint32 7", "array of 5 string".
[[nodiscard]] std::string describe(const GgufValue& value);
// The name that ggml gives a tensor type number, also for those that this build cannot read; "unknown".
[[nodiscard]] std::string_view ggml_type_name(uint32_t number);

}  // namespace quire
