#include "files/gguf_part.h"

#include <bit>
#include <string>

#include "files/field_reader.h"
#include "files/gguf_format.h"
#include "files/gguf_tensor_index.h"

namespace quire {
namespace {

// Fewest bytes of a pair: an empty key's length, the value type, a value of one byte.
constexpr uint64_t kPairBytesMin = 8 + 4 + 1;
// Fewest bytes of a tensor description: a name's length, n_dimensions, one dimension, type, offset.
constexpr uint64_t kTensorInfoBytesMin = 8 + 4 + 8 + 4 + 8;

Result<void> read_magic(FieldReader& reader) {
  const FieldName field{.owner = "magic"};
  const auto bytes = TRY(reader.take(field, kGgufMagic.size()));
  const std::string_view magic(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (magic == kGgufMagic) return {};
  if (magic == "tjgg" || magic == "fmgg" || magic == "lmgg") {
    return reader.unsupported(field, 0, "this is a ggml file from before GGUF (\"{}\"), convert it",
                              printable(magic));
  }
  return reader.corrupt(field, 0, "found \"{}\", a GGUF file begins with \"{}\"", printable(magic),
                        kGgufMagic);
}

Result<uint32_t> read_version(FieldReader& reader) {
  const FieldName field{.owner = "version"};
  const uint64_t at = reader.offset();
  const auto version = TRY(reader.number<uint32_t>(field));
  if (version >= kGgufVersionMin && version <= kGgufVersionMax) return version;
  const uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= kGgufVersionMax) {
    return reader.unsupported(field, at, "this is a big-endian file (version {}), only little-endian is read",
                              swapped);
  }
  return reader.unsupported(field, at, "version is {}, this build reads {} to {}", version, kGgufVersionMin,
                            kGgufVersionMax);
}

// How many things a section says to hold, against what can fit.
struct CountLimit {
  uint64_t entry_bytes_min;
  uint64_t count_max;
};

Result<uint64_t> read_count(FieldReader& reader, std::string_view name, CountLimit limit) {
  const FieldName field{.owner = name};
  const uint64_t at = reader.offset();
  const auto count = TRY(reader.number<uint64_t>(field));
  if (count > limit.count_max) {
    return reader.corrupt(field, at, "count is {}, the limit is {}", count, limit.count_max);
  }
  if (count > reader.remaining() / limit.entry_bytes_min) {
    return reader.corrupt(field, at, "count is {}, but the file has only {} bytes left", count,
                          reader.remaining());
  }
  return count;
}

Result<uint64_t> find_alignment(const FieldReader& reader, const GgufMetadata& metadata) {
  const std::string_view key = "general.alignment";
  const auto [value, at] = metadata.find(key);
  if (value == nullptr) return kGgufAlignmentDefault;
  const auto* number = std::get_if<uint32_t>(value);
  if (number == nullptr)
    return reader.corrupt({.owner = key}, at, "it is {}, expected a uint32", describe(*value));
  if (*number < kGgufAlignmentMin || *number > kGgufAlignmentMax || !std::has_single_bit(*number)) {
    return reader.corrupt({.owner = key}, at, "alignment is {}, expected a power of two from {} to {}",
                          *number, kGgufAlignmentMin, kGgufAlignmentMax);
  }
  return *number;
}

}  // namespace

Result<GgufPart> read_gguf_part(std::span<const std::byte> bytes, std::string_view file) {
  static_assert(std::endian::native == std::endian::little);
  FieldReader reader(bytes, file);
  GgufPart part;
  TRY(read_magic(reader));
  part.version = TRY(read_version(reader));
  const auto tensor_count = TRY(read_count(
      reader, "tensor_count", {.entry_bytes_min = kTensorInfoBytesMin, .count_max = kGgufTensorCountMax}));
  const auto pair_count = TRY(read_count(
      reader, "metadata_kv_count", {.entry_bytes_min = kPairBytesMin, .count_max = kGgufMetadataCountMax}));
  part.metadata = TRY(read_gguf_metadata(reader, pair_count));
  const auto alignment = TRY(find_alignment(reader, part.metadata));
  part.tensors = TRY(read_gguf_tensors(reader, {.count = tensor_count, .alignment = alignment}));
  return part;
}

}  // namespace quire
