#include "files/gguf_file.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "files/field_reader.h"
#include "files/gguf_format.h"
#include "files/gguf_part.h"
#include "files/gguf_split.h"

namespace quire {

struct GgufFile::Impl {
  std::string path;
  std::vector<MappedFile> mappings;  // one a part; empty when parsed from memory
  uint32_t version = 0;
  uint64_t file_bytes = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
  std::vector<uint32_t> by_name;  // indices of tensors, ordered by name

  Result<void> index_tensors() {
    by_name.resize(tensors.size());
    std::iota(by_name.begin(), by_name.end(), 0u);
    std::ranges::sort(by_name, {}, [&](uint32_t index) { return std::pair(tensors[index].name, index); });
    // Within a part the names are known to be unique.
    for (size_t i = 1; i < by_name.size(); ++i) {
      const GgufTensor& first = tensors[by_name[i - 1]];
      const GgufTensor& second = tensors[by_name[i]];
      if (first.name == second.name) {
        return fail(ErrorCode::kCorruptFile, printable(first.name),
                    "{}: tensor {} is in part {} and again in part {}", path, printable(first.name),
                    first.file_index + 1, second.file_index + 1);
      }
    }
    return {};
  }

  // An error about the value of `key`.
  template <class... Args>
  [[nodiscard]] std::unexpected<Error> wrong(std::string_view key, GgufMetadata::Entry entry,
                                             std::string_view expected) const {
    return fail(ErrorCode::kCorruptFile, printable(key), "{}: {} at byte {} is {}, expected {}", path,
                printable(key), entry.offset, describe(*entry.value), expected);
  }
};

GgufFile::GgufFile(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  auto impl = std::make_shared<Impl>();
  impl->path = std::move(name);
  impl->file_bytes = bytes.size();
  auto part = TRY(read_gguf_part(bytes, impl->path));
  const auto place = TRY(split_place(part, impl->path));
  if (place.part_count > 1) {
    return fail(ErrorCode::kInvalidArgument, "split.count",
                "{}: split.count is {}; one part of a split model cannot be read by itself", impl->path,
                place.part_count);
  }
  impl->version = part.version;
  impl->metadata = std::move(part.metadata);
  impl->tensors = std::move(part.tensors);
  TRY(impl->index_tensors());
  return GgufFile(std::move(impl));
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  impl->mappings.push_back(TRY(MappedFile::open(path)));
  auto first = TRY(read_gguf_part(impl->mappings[0].bytes(), impl->path));
  const auto place = TRY(split_place(first, path));
  const auto part_paths = TRY(split_part_paths(path, place));
  impl->version = first.version;
  impl->tensors = std::move(first.tensors);
  for (int index = 1; index < static_cast<int>(part_paths.size()); ++index) {
    auto mapping = MappedFile::open(part_paths[index]);
    if (!mapping) {
      return fail(mapping.error().code, "path", "part {} of {} is missing: {}", index + 1, part_paths.size(),
                  mapping.error().message);
    }
    impl->mappings.push_back(std::move(*mapping));
    auto part = TRY(read_gguf_part(impl->mappings.back().bytes(), part_paths[index]));
    TRY(check_split_part(part, {.path = part_paths[index], .index = index, .first = place}));
    for (GgufTensor& tensor : part.tensors) tensor.file_index = index;
    std::ranges::move(part.tensors, std::back_inserter(impl->tensors));
  }
  impl->metadata = std::move(first.metadata);
  for (const MappedFile& mapping : impl->mappings) impl->file_bytes += mapping.bytes().size();
  if (place.tensor_count && *place.tensor_count != static_cast<int64_t>(impl->tensors.size())) {
    return fail(ErrorCode::kCorruptFile, "split.tensors.count",
                "{}: split.tensors.count is {}, the {} parts hold {} tensors", path, *place.tensor_count,
                part_paths.size(), impl->tensors.size());
  }
  TRY(impl->index_tensors());
  return GgufFile(std::move(impl));
}

uint32_t GgufFile::version() const {
  return impl_->version;
}
const std::string& GgufFile::path() const {
  return impl_->path;
}
uint64_t GgufFile::file_bytes() const {
  return impl_->file_bytes;
}
std::vector<FileStamp> GgufFile::stamps() const {
  std::vector<FileStamp> stamps;
  for (const MappedFile& mapping : impl_->mappings) stamps.push_back(mapping.stamp());
  return stamps;
}
const std::vector<std::pair<std::string_view, GgufValue>>& GgufFile::metadata() const {
  return impl_->metadata.pairs;
}
const GgufValue* GgufFile::find(std::string_view key) const {
  return impl_->metadata.find(key).value;
}
std::optional<uint64_t> GgufFile::offset_of(std::string_view key) const {
  const auto entry = impl_->metadata.find(key);
  if (entry.value == nullptr) return std::nullopt;
  return entry.offset;
}
const std::vector<GgufTensor>& GgufFile::tensors() const {
  return impl_->tensors;
}

Result<std::optional<int64_t>> GgufFile::get_int(std::string_view key) const {
  const auto entry = impl_->metadata.find(key);
  if (entry.value == nullptr) return std::nullopt;
  return std::visit(
      [&]<class T>(const T& held) -> Result<std::optional<int64_t>> {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          if (std::in_range<int64_t>(held)) return static_cast<int64_t>(held);
        }
        return impl_->wrong(key, entry, "an integer");
      },
      *entry.value);
}

Result<std::optional<double>> GgufFile::get_float(std::string_view key) const {
  const auto entry = impl_->metadata.find(key);
  if (entry.value == nullptr) return std::nullopt;
  return std::visit(
      [&]<class T>(const T& held) -> Result<std::optional<double>> {
        if constexpr (std::is_floating_point_v<T>) return static_cast<double>(held);
        return impl_->wrong(key, entry, "a float32 or float64");
      },
      *entry.value);
}

Result<std::optional<bool>> GgufFile::get_bool(std::string_view key) const {
  const auto entry = impl_->metadata.find(key);
  if (entry.value == nullptr) return std::nullopt;
  if (const auto* held = std::get_if<bool>(entry.value)) return *held;
  return impl_->wrong(key, entry, "a bool");
}

Result<std::optional<std::string_view>> GgufFile::get_string(std::string_view key) const {
  const auto entry = impl_->metadata.find(key);
  if (entry.value == nullptr) return std::nullopt;
  if (const auto* held = std::get_if<std::string_view>(entry.value)) return *held;
  return impl_->wrong(key, entry, "a string");
}

Result<const GgufArray*> GgufFile::get_array(std::string_view key) const {
  const auto entry = impl_->metadata.find(key);
  if (entry.value == nullptr) return nullptr;
  if (const auto* held = std::get_if<std::shared_ptr<const GgufArray>>(entry.value)) return held->get();
  return impl_->wrong(key, entry, "an array");
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  auto found = std::ranges::lower_bound(impl_->by_name, name, {},
                                        [&](uint32_t index) { return impl_->tensors[index].name; });
  if (found == impl_->by_name.end() || impl_->tensors[*found].name != name) return nullptr;
  return &impl_->tensors[*found];
}

void GgufFile::release(const GgufTensor& tensor) const {
  if (impl_->mappings.empty()) return;
  CHECK(tensor.file_index >= 0 && tensor.file_index < static_cast<int>(impl_->mappings.size()));
  impl_->mappings[tensor.file_index].release_pages(tensor.bytes);
}

}  // namespace quire
