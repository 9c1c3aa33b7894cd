// Reads numbers and strings from hostile bytes; every error names the field and its byte offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace quire {

// Text from a file, safe to print: control bytes and bytes beyond ASCII are escaped, long texts are cut.
[[nodiscard]] std::string printable(std::string_view text);

// What a value is called in error messages, put together only when there is one:
// "tensor_infos[3].n_dimensions", "tokenizer.ggml.tokens[7]".
struct FieldName {
  std::string_view owner;
  std::optional<uint64_t> index = std::nullopt;
  std::string_view part = {};
  std::optional<uint64_t> part_index = std::nullopt;

  [[nodiscard]] std::string text() const;
};

// A cursor over the bytes of a little-endian file. Views are into the bytes, which outlive the reader.
// Invariants: (1) offset() <= size(); (2) a failed read does not move the cursor. Allocates only for errors.
class FieldReader {
 public:
  // `file` names the file in errors and outlives the reader.
  FieldReader(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  [[nodiscard]] uint64_t offset() const { return offset_; }
  [[nodiscard]] uint64_t size() const { return bytes_.size(); }
  [[nodiscard]] uint64_t remaining() const { return bytes_.size() - offset_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::string_view file() const { return file_; }

  template <class T>
  Result<T> number(const FieldName& field) {
    if (remaining() < sizeof(T)) return truncated(field, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }
  // `length` bytes as they are.
  Result<std::span<const std::byte>> take(const FieldName& field, uint64_t length);
  // A string with a 64-bit length in front.
  Result<std::string_view> text(const FieldName& field, uint64_t length_max);

  // An error of kind kCorruptFile about `field`, which stands at byte `at`.
  template <class... Args>
  [[nodiscard]] std::unexpected<Error> corrupt(const FieldName& field, uint64_t at,
                                               fmt::format_string<Args...> text, Args&&... args) const {
    return error({ErrorCode::kCorruptFile, at}, field, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[nodiscard]] std::unexpected<Error> unsupported(const FieldName& field, uint64_t at,
                                                   fmt::format_string<Args...> text, Args&&... args) const {
    return error({ErrorCode::kUnsupported, at}, field, fmt::format(text, std::forward<Args>(args)...));
  }

 private:
  struct Fault {
    ErrorCode code;
    uint64_t at;
  };
  [[nodiscard]] std::unexpected<Error> error(Fault fault, const FieldName& field,
                                             const std::string& text) const;
  [[nodiscard]] std::unexpected<Error> truncated(const FieldName& field, uint64_t wanted) const;

  std::span<const std::byte> bytes_;
  std::string_view file_;
  uint64_t offset_ = 0;
};

}  // namespace quire
