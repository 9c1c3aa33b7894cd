// Writes GGUF files: for tests, which need small models and broken ones, and for tools.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "core/tensor_type.h"

namespace quire {

// A metadata value in file form.
struct GgufEncoded {
  uint32_t type = 0;  // GGUF value type number
  std::string bytes;
};

// The GGUF type number of a C++ arithmetic type.
template <class T>
  requires std::is_arithmetic_v<T>
constexpr uint32_t gguf_type_of() {
  if constexpr (std::same_as<T, bool>) return 7;
  if constexpr (std::same_as<T, uint8_t>) return 0;
  if constexpr (std::same_as<T, int8_t>) return 1;
  if constexpr (std::same_as<T, uint16_t>) return 2;
  if constexpr (std::same_as<T, int16_t>) return 3;
  if constexpr (std::same_as<T, uint32_t>) return 4;
  if constexpr (std::same_as<T, int32_t>) return 5;
  if constexpr (std::same_as<T, float>) return 6;
  if constexpr (std::same_as<T, uint64_t>) return 10;
  if constexpr (std::same_as<T, int64_t>) return 11;
  if constexpr (std::same_as<T, double>) return 12;
}

// Encoders: a number or bool, a string, an array of numbers, of strings, of arrays.
template <class T>
  requires std::is_arithmetic_v<T>
[[nodiscard]] GgufEncoded gguf_encode(T value) {
  return {.type = gguf_type_of<T>(), .bytes = std::string(reinterpret_cast<const char*>(&value), sizeof(T))};
}
[[nodiscard]] GgufEncoded gguf_encode(std::string_view text);
[[nodiscard]] GgufEncoded gguf_encode(const char* text);
// Elements of one type; `element_type` also stands when there are none.
[[nodiscard]] GgufEncoded gguf_encode_array(uint32_t element_type, std::span<const GgufEncoded> elements);
template <class T>
[[nodiscard]] GgufEncoded gguf_encode(const std::vector<T>& values) {
  std::vector<GgufEncoded> elements;
  elements.reserve(values.size());
  for (const auto& value : values) elements.push_back(gguf_encode(static_cast<T>(value)));
  if constexpr (std::is_arithmetic_v<T>) {
    return gguf_encode_array(gguf_type_of<T>(), elements);
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    return gguf_encode_array(8, elements);
  } else {
    return gguf_encode_array(9, elements);
  }
}

struct GgufTensorData {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  // row-major, outermost first, as in GgufTensor
  std::vector<std::byte> bytes;
};

// Collects pairs and tensors; bytes() lays them out in order. Writes whatever it is given: nothing is
// checked, so that tests can make broken files.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  template <class T>
  GgufWriter& add(std::string key, const T& value) {
    return add_encoded(std::move(key), gguf_encode(value));
  }
  GgufWriter& add_encoded(std::string key, GgufEncoded value);
  // Replaces the value of a key that is there, else adds it.
  template <class T>
  GgufWriter& set(const std::string& key, const T& value) {
    return set_encoded(key, gguf_encode(value));
  }
  GgufWriter& set_encoded(const std::string& key, GgufEncoded value);
  GgufWriter& remove(std::string_view key);
  GgufWriter& add_tensor(GgufTensorData tensor);
  GgufWriter& add_tensor_f32(std::string name, std::vector<int64_t> shape, std::span<const float> values);
  // Of tensor data; also written as general.alignment.
  GgufWriter& set_alignment(uint32_t alignment);

  [[nodiscard]] std::vector<GgufTensorData>& tensors() { return tensors_; }

  [[nodiscard]] std::vector<std::byte> bytes();
  // Where each field stands in the last bytes(), by the reader's names: "tensor_infos[0].offset", a key for
  // its value, "KEY.element_type" and "KEY.count" for arrays, "data[0]" for the first tensor's data.
  [[nodiscard]] std::optional<uint64_t> offset_of(const std::string& field) const;
  [[nodiscard]] Result<void> write(const std::string& path);

 private:
  uint32_t version_;
  uint32_t alignment_ = 32;
  std::vector<std::pair<std::string, GgufEncoded>> pairs_;
  std::vector<GgufTensorData> tensors_;
  std::map<std::string, uint64_t> offsets_;
};

}  // namespace quire
