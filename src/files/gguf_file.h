// GGUF model files, versions 2 and 3 (specification: ggml docs/gguf.md), read through checked arithmetic.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "core/tensor_type.h"

namespace quire {

struct GgufArray;
// One metadata value. Strings and arrays are views of the file's bytes where the type allows.
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                               std::string_view, std::shared_ptr<const GgufArray>, uint64_t, int64_t, double>;

// A metadata array; nested arrays hold GgufArray values. Elements are decoded once, at open.
struct GgufArray {
  uint32_t element_type = 0;  // GGUF value type number
  std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
               std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>,
               std::vector<std::string_view>, std::vector<GgufValue>, std::vector<uint64_t>,
               std::vector<int64_t>, std::vector<double>>
      elements;
  [[nodiscard]] size_t size() const;
};

struct GgufTensor {
  std::string_view name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  // row-major, outermost first: [out, in] for a matrix
  std::span<const std::byte> bytes;
  int file_index = 0;  // of a split model

  [[nodiscard]] int64_t elements() const;
};

// An open model, split or not: metadata of the first file, tensors of all. Immutable, any thread.
class GgufFile {
 public:
  // `path` of a split model names its first part (-00001-of-0000N). Errors: kCorruptFile with field and
  // offset, kUnsupported (an unknown tensor type, named with the known ones), kIo, kNotFound.
  static Result<GgufFile> open(const std::string& path);
  // For tests and fuzzing: parses one unsplit file in memory that outlives the result.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] uint32_t version() const;
  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] uint64_t file_bytes() const;  // of all parts
  // Of every part's file, when it was opened; none when parsed from memory.
  [[nodiscard]] std::vector<FileStamp> stamps() const;
  [[nodiscard]] const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const;
  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  // Where the value of `key` stands in the first file, for error messages; nullopt when absent.
  [[nodiscard]] std::optional<uint64_t> offset_of(std::string_view key) const;

  // Typed look-ups. Any integer type is accepted for an integer where the value fits; errors (kCorruptFile)
  // name the key, the value and what was expected. An absent key: nullopt.
  [[nodiscard]] Result<std::optional<int64_t>> get_int(std::string_view key) const;
  [[nodiscard]] Result<std::optional<double>> get_float(std::string_view key) const;
  [[nodiscard]] Result<std::optional<bool>> get_bool(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string_view>> get_string(std::string_view key) const;
  [[nodiscard]] Result<const GgufArray*> get_array(std::string_view key) const;  // nullptr when absent

  [[nodiscard]] const std::vector<GgufTensor>& tensors() const;
  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const;

  // The bytes of `tensor` will not be read again: their pages may leave memory.
  void release(const GgufTensor& tensor) const;

 private:
  struct Impl;
  explicit GgufFile(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace quire
