#include "files/gguf_format.h"

#include <fmt/format.h>

#include <array>
#include <type_traits>

#include "base/check.h"
#include "files/field_reader.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, kGgufTypeCount> kTypeNames = {
    "uint8", "int8",   "uint16", "int16",  "uint32", "int32",   "float32",
    "bool",  "string", "array",  "uint64", "int64",  "float64",
};

struct GgmlTypeName {
  uint32_t number;
  std::string_view name;
};

// Types that ggml knows and this build does not read; numbers from the GGUF specification.
constexpr GgmlTypeName kOtherTypes[] = {
    {4, "Q4_2, removed from the format"},
    {5, "Q4_3, removed from the format"},
    {9, "Q8_1"},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M"},
    {31, "Q4_0_4_4, removed from the format"},
    {32, "Q4_0_4_8, removed from the format"},
    {33, "Q4_0_8_8, removed from the format"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {36, "IQ4_NL_4_4, removed from the format"},
    {37, "IQ4_NL_4_8, removed from the format"},
    {38, "IQ4_NL_8_8, removed from the format"},
    {40, "NVFP4"},
};

}  // namespace

std::string_view gguf_type_name(uint32_t number) {
  CHECK(number < kGgufTypeCount);
  return kTypeNames[number];
}

std::string describe(const GgufValue& value) {
  const std::string_view type = gguf_type_name(static_cast<uint32_t>(value.index()));
  return std::visit(
      [&]<class T>(const T& held) -> std::string {
        if constexpr (std::is_same_v<T, std::string_view>) {
          return fmt::format("{} \"{}\"", type, printable(held));
        } else if constexpr (std::is_same_v<T, std::shared_ptr<const GgufArray>>) {
          return fmt::format("array of {} {}", held->size(), gguf_type_name(held->element_type));
        } else {
          return fmt::format("{} {}", type, held);
        }
      },
      value);
}

std::string_view ggml_type_name(uint32_t number) {
  if (const TensorTypeInfo* info = find_tensor_type(number)) return info->name;
  for (const GgmlTypeName& other : kOtherTypes) {
    if (other.number == number) return other.name;
  }
  return "unknown";
}

}  // namespace quire
