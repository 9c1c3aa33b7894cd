#include "files/gguf_metadata.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "files/gguf_format.h"

namespace quire {
namespace {

constexpr std::string_view kPair = "metadata_kv";

// Fewest bytes that one element of a type takes in a file.
uint64_t element_bytes_min(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kString:  // its length
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kArray:  // its element type and count
      return 12;
  }
  UNREACHABLE();
}

Result<GgufType> read_type(FieldReader& reader, const FieldName& field) {
  const uint64_t at = reader.offset();
  const auto number = TRY(reader.number<uint32_t>(field));
  if (number >= kGgufTypeCount) {
    return reader.corrupt(field, at, "value type {} does not exist, the last is {}", number,
                          kGgufTypeCount - 1);
  }
  return static_cast<GgufType>(number);
}

Result<bool> read_bool(FieldReader& reader, const FieldName& field) {
  const uint64_t at = reader.offset();
  const auto byte = TRY(reader.number<uint8_t>(field));
  if (byte > 1) return reader.corrupt(field, at, "bool is {}, only 0 and 1 are valid", byte);
  return byte == 1;
}

// Reads the elements of one array; nested arrays recurse, at most kGgufArrayDepthMax deep.
class ArrayReader {
 public:
  ArrayReader(FieldReader& reader, std::string_view key) : reader_(reader), key_(key) {}

  Result<std::shared_ptr<const GgufArray>> read(int depth) {
    const FieldName field{.owner = key_};
    const uint64_t at = reader_.offset();
    if (depth > kGgufArrayDepthMax)
      return reader_.corrupt(field, at, "arrays are nested deeper than {}", kGgufArrayDepthMax);
    const GgufType type = TRY(read_type(reader_, {.owner = key_, .part = "element_type"}));
    const uint64_t count_at = reader_.offset();
    const FieldName count_field{.owner = key_, .part = "count"};
    const auto count = TRY(reader_.number<uint64_t>(count_field));
    if (count > kGgufArrayElementsMax) {
      return reader_.corrupt(count_field, count_at, "{} elements, the limit is {}", count,
                             kGgufArrayElementsMax);
    }
    if (count > reader_.remaining() / element_bytes_min(type)) {
      return reader_.corrupt(count_field, count_at, "{} elements of type {}, the file has {} bytes left",
                             count, gguf_type_name(static_cast<uint32_t>(type)), reader_.remaining());
    }
    auto array = std::make_shared<GgufArray>();
    array->element_type = static_cast<uint32_t>(type);
    TRY(read_elements(*array, type, {.count = count, .depth = depth}));
    return array;
  }

 private:
  struct Extent {
    uint64_t count;
    int depth;
  };

  Result<void> read_elements(GgufArray& array, GgufType type, Extent extent) {
    switch (type) {
      case GgufType::kUint8:
        return numbers<uint8_t>(array, extent);
      case GgufType::kInt8:
        return numbers<int8_t>(array, extent);
      case GgufType::kUint16:
        return numbers<uint16_t>(array, extent);
      case GgufType::kInt16:
        return numbers<int16_t>(array, extent);
      case GgufType::kUint32:
        return numbers<uint32_t>(array, extent);
      case GgufType::kInt32:
        return numbers<int32_t>(array, extent);
      case GgufType::kFloat32:
        return numbers<float>(array, extent);
      case GgufType::kUint64:
        return numbers<uint64_t>(array, extent);
      case GgufType::kInt64:
        return numbers<int64_t>(array, extent);
      case GgufType::kFloat64:
        return numbers<double>(array, extent);
      case GgufType::kBool:
        return bools(array, extent);
      case GgufType::kString:
        return strings(array, extent);
      case GgufType::kArray:
        return arrays(array, extent);
    }
    UNREACHABLE();
  }

  template <class T>
  Result<void> numbers(GgufArray& array, Extent extent) {
    const auto bytes = TRY(reader_.take({.owner = key_}, extent.count * sizeof(T)));
    auto& values = array.elements.template emplace<std::vector<T>>(extent.count);
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return {};
  }

  Result<void> bools(GgufArray& array, Extent extent) {
    auto& values = array.elements.emplace<std::vector<bool>>(extent.count);
    for (uint64_t i = 0; i < extent.count; ++i)
      values[i] = TRY(read_bool(reader_, {.owner = key_, .index = i}));
    return {};
  }

  Result<void> strings(GgufArray& array, Extent extent) {
    auto& values = array.elements.emplace<std::vector<std::string_view>>();
    values.reserve(extent.count);
    for (uint64_t i = 0; i < extent.count; ++i)
      values.push_back(TRY(reader_.text({.owner = key_, .index = i}, kGgufStringBytesMax)));
    return {};
  }

  Result<void> arrays(GgufArray& array, Extent extent) {
    auto& values = array.elements.emplace<std::vector<GgufValue>>();
    values.reserve(extent.count);
    for (uint64_t i = 0; i < extent.count; ++i) values.emplace_back(TRY(read(extent.depth + 1)));
    return {};
  }

  FieldReader& reader_;
  std::string_view key_;
};

template <class T>
Result<GgufValue> number_value(FieldReader& reader, const FieldName& field) {
  return GgufValue(TRY(reader.number<T>(field)));
}

Result<GgufValue> read_value(FieldReader& reader, std::string_view key, GgufType type) {
  const FieldName field{.owner = key};
  switch (type) {
    case GgufType::kUint8:
      return number_value<uint8_t>(reader, field);
    case GgufType::kInt8:
      return number_value<int8_t>(reader, field);
    case GgufType::kUint16:
      return number_value<uint16_t>(reader, field);
    case GgufType::kInt16:
      return number_value<int16_t>(reader, field);
    case GgufType::kUint32:
      return number_value<uint32_t>(reader, field);
    case GgufType::kInt32:
      return number_value<int32_t>(reader, field);
    case GgufType::kFloat32:
      return number_value<float>(reader, field);
    case GgufType::kUint64:
      return number_value<uint64_t>(reader, field);
    case GgufType::kInt64:
      return number_value<int64_t>(reader, field);
    case GgufType::kFloat64:
      return number_value<double>(reader, field);
    case GgufType::kBool:
      return GgufValue(TRY(read_bool(reader, field)));
    case GgufType::kString:
      return GgufValue(TRY(reader.text(field, kGgufStringBytesMax)));
    case GgufType::kArray:
      return GgufValue(TRY(ArrayReader(reader, key).read(1)));
  }
  UNREACHABLE();
}

}  // namespace

size_t GgufArray::size() const {
  return std::visit([](const auto& values) { return values.size(); }, elements);
}

GgufMetadata::Entry GgufMetadata::find(std::string_view key) const {
  auto found = std::ranges::lower_bound(by_key, key, {}, [&](uint32_t index) { return pairs[index].first; });
  if (found == by_key.end() || pairs[*found].first != key) return {.value = nullptr, .offset = 0};
  return {.value = &pairs[*found].second, .offset = value_offsets[*found]};
}

Result<GgufMetadata> read_gguf_metadata(FieldReader& reader, uint64_t count) {
  GgufMetadata metadata;
  std::vector<uint64_t> key_offsets;
  metadata.pairs.reserve(count);
  metadata.value_offsets.reserve(count);
  key_offsets.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = reader.offset();
    const FieldName key_field{.owner = kPair, .index = i, .part = "key"};
    const auto key = TRY(reader.text(key_field, kGgufKeyBytesMax));
    if (key.empty()) return reader.corrupt(key_field, at, "the key is empty");
    const GgufType type = TRY(read_type(reader, {.owner = kPair, .index = i, .part = "value_type"}));
    key_offsets.push_back(at);
    metadata.value_offsets.push_back(reader.offset());
    metadata.pairs.emplace_back(key, TRY(read_value(reader, key, type)));
  }

  metadata.by_key.resize(count);
  std::iota(metadata.by_key.begin(), metadata.by_key.end(), 0u);
  std::ranges::sort(metadata.by_key, {},
                    [&](uint32_t index) { return std::pair(metadata.pairs[index].first, index); });
  for (uint64_t i = 1; i < count; ++i) {
    const uint32_t first = metadata.by_key[i - 1];
    const uint32_t second = metadata.by_key[i];
    if (metadata.pairs[first].first == metadata.pairs[second].first) {
      return reader.corrupt({.owner = kPair, .index = second, .part = "key"}, key_offsets[second],
                            "key \"{}\" appears twice, first at byte {}",
                            printable(metadata.pairs[first].first), key_offsets[first]);
    }
  }
  return metadata;
}

}  // namespace quire
