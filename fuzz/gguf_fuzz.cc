// Fuzzes the GGUF reader and the model specs: whatever the bytes are, they are read or refused.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "base/check.h"
#include "files/gguf_file.h"
#include "files/gguf_format.h"
#include "model/model.h"
#include "model/weight_names.h"

namespace quire {
namespace {

// Reads everything that a value holds, so that the sanitizers see it.
class Walker {
 public:
  void walk(const GgufValue& value) {
    std::visit([this](const auto& held) { take(held); }, value);
    sum_ += describe(value).size();
  }
  void walk(std::span<const std::byte> bytes) {
    for (std::byte byte : bytes) sum_ += static_cast<uint64_t>(byte);
  }
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  template <class T>
  void take(const T& number) {
    sum_ += number != T{};
  }
  void take(std::string_view text) { walk(std::as_bytes(std::span(text))); }
  void take(const std::shared_ptr<const GgufArray>& array) {
    CHECK(array != nullptr && array->elements.index() == array->element_type);
    std::visit(
        [this]<class T>(const std::vector<T>& values) {
          for (const auto& value : values) {
            if constexpr (std::is_same_v<T, GgufValue>) {
              walk(value);
            } else {
              take(static_cast<T>(value));
            }
          }
        },
        array->elements);
  }

  uint64_t sum_ = 0;
};

uint64_t walk(const GgufFile& file, std::span<const std::byte> bytes) {
  Walker walker;
  for (const auto& [key, value] : file.metadata()) {
    CHECK(file.find(key) == &value && file.offset_of(key).value() <= bytes.size());
    walker.walk(value);
    const int readings = file.get_int(key).has_value() + file.get_float(key).has_value() +
                         file.get_bool(key).has_value() + file.get_string(key).has_value() +
                         file.get_array(key).has_value();
    CHECK(readings <= 1);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    CHECK(file.find_tensor(tensor.name) == &tensor);
    CHECK(tensor.elements() > 0 && !tensor.bytes.empty());
    CHECK(tensor.bytes.data() >= bytes.data() &&
          tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + bytes.size());
    walker.walk(tensor.bytes);
    file.release(tensor);
  }
  return walker.sum();
}

uint64_t read_spec(const GgufFile& file) {
  const auto spec = read_model_spec(file);
  if (!spec) {
    CHECK(!spec.error().message.empty());
    return 0;
  }
  CHECK(!spec->layers.empty() && spec->kv_geometry(KvType::kF16).groups.size() <= kLayerGroupsMax);
  return all_weight_names(*spec).size();
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = quire::GgufFile::parse(bytes, "fuzz");
  if (!file) {
    CHECK(!file.error().message.empty() && !file.error().field.empty());
    return 0;
  }
  [[maybe_unused]] static volatile uint64_t sink;  // keeps the reads
  sink = quire::walk(*file, bytes) + quire::read_spec(*file);
  return 0;
}
