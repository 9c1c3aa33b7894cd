#include "files/gguf_tensor_index.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "files/gguf_format.h"

namespace quire {
namespace {

constexpr std::string_view kInfo = "tensor_infos";

// One description as the file has it, checked by itself but not yet against the others.
struct TensorInfo {
  GgufTensor tensor;       // without bytes
  uint64_t size = 0;       // of its data
  uint64_t offset = 0;     // of its data, from the start of the data section
  uint64_t name_at = 0;    // where its name stands
  uint64_t offset_at = 0;  // where its data offset stands
};

std::string known_types() {
  std::vector<std::string_view> names;
  for (const TensorTypeInfo& info : tensor_types()) names.push_back(info.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Reads description number `index`.
class InfoReader {
 public:
  InfoReader(FieldReader& reader, uint64_t index, uint64_t alignment)
      : reader_(reader), index_(index), alignment_(alignment) {}

  Result<TensorInfo> read() {
    TRY(read_name());
    TRY(read_shape());
    TRY(read_type());
    TRY(read_offset());
    return std::move(info_);
  }

 private:
  [[nodiscard]] FieldName field(std::string_view part) const {
    return {.owner = kInfo, .index = index_, .part = part};
  }
  [[nodiscard]] std::string name() const { return printable(info_.tensor.name); }

  Result<void> read_name() {
    info_.name_at = reader_.offset();
    info_.tensor.name = TRY(reader_.text(field("name"), kGgufTensorNameBytesMax));
    if (info_.tensor.name.empty())
      return reader_.corrupt(field("name"), info_.name_at, "the tensor's name is empty");
    return {};
  }

  Result<void> read_shape() {
    const uint64_t count_at = reader_.offset();
    const auto count = TRY(reader_.number<uint32_t>(field("n_dimensions")));
    if (count < 1 || count > kGgufDimensionsMax) {
      return reader_.corrupt(field("n_dimensions"), count_at,
                             "{} dimensions (tensor {}), allowed are 1 to {}", count, name(),
                             kGgufDimensionsMax);
    }
    inner_at_ = reader_.offset();
    for (uint32_t i = 0; i < count; ++i) {
      FieldName dimension = field("dimensions");
      dimension.part_index = i;
      const uint64_t at = reader_.offset();
      const auto size = TRY(reader_.number<uint64_t>(dimension));
      if (size == 0) return reader_.corrupt(dimension, at, "dimension is 0 (tensor {})", name());
      auto product = checked_mul(elements_, size);
      if (!product || *product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return reader_.corrupt(dimension, at, "dimension {} makes the tensor's size overflow (tensor {})",
                               size, name());
      }
      elements_ = *product;
      info_.tensor.shape.push_back(static_cast<int64_t>(size));
    }
    inner_ = static_cast<uint64_t>(info_.tensor.shape.front());
    std::ranges::reverse(info_.tensor.shape);  // files have the innermost dimension first
    return {};
  }

  Result<void> read_type() {
    const uint64_t at = reader_.offset();
    const auto number = TRY(reader_.number<uint32_t>(field("type")));
    const TensorTypeInfo* type = find_tensor_type(number);
    if (type == nullptr) {
      return reader_.unsupported(field("type"), at, "tensor {} has type {} ({}), this build reads {}", name(),
                                 number, ggml_type_name(number), known_types());
    }
    info_.tensor.type = type->type;
    const auto block_elements = static_cast<uint64_t>(type->block_elements);
    if (inner_ % block_elements != 0) {
      FieldName innermost = field("dimensions");
      innermost.part_index = 0;
      return reader_.corrupt(innermost, inner_at_,
                             "rows of {} values are no multiple of the {} values of a {} block (tensor {})",
                             inner_, block_elements, type->name, name());
    }
    auto size = checked_mul(elements_ / block_elements, static_cast<uint64_t>(type->block_bytes));
    if (!size) {
      return reader_.corrupt(field("type"), at, "{} values of type {} overflow the size (tensor {})",
                             elements_, type->name, name());
    }
    info_.size = *size;
    return {};
  }

  Result<void> read_offset() {
    info_.offset_at = reader_.offset();
    info_.offset = TRY(reader_.number<uint64_t>(field("offset")));
    if (info_.offset % alignment_ != 0) {
      return reader_.corrupt(field("offset"), info_.offset_at,
                             "data offset {} is no multiple of the alignment {} (tensor {})", info_.offset,
                             alignment_, name());
    }
    return {};
  }

  FieldReader& reader_;
  uint64_t index_;
  uint64_t alignment_;
  TensorInfo info_;
  uint64_t elements_ = 1;
  uint64_t inner_ = 0;     // values of a row
  uint64_t inner_at_ = 0;  // where that stands
};

Result<void> check_names(const FieldReader& reader, const std::vector<TensorInfo>& infos) {
  std::vector<uint32_t> order(infos.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t index) { return std::pair(infos[index].tensor.name, index); });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& first = infos[order[i - 1]];
    const TensorInfo& second = infos[order[i]];
    if (first.tensor.name == second.tensor.name) {
      return reader.corrupt({.owner = kInfo, .index = order[i], .part = "name"}, second.name_at,
                            "tensor {} appears twice, first at byte {}", printable(first.tensor.name),
                            first.name_at);
    }
  }
  return {};
}

Result<void> check_overlaps(const FieldReader& reader, const std::vector<TensorInfo>& infos) {
  std::vector<uint32_t> order(infos.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t index) { return std::pair(infos[index].offset, index); });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& first = infos[order[i - 1]];
    const TensorInfo& second = infos[order[i]];
    if (second.offset - first.offset < first.size) {
      return reader.corrupt({.owner = kInfo, .index = order[i], .part = "offset"}, second.offset_at,
                            "data of tensor {} at {} overlaps tensor {}, {} bytes at {}",
                            printable(second.tensor.name), second.offset, printable(first.tensor.name),
                            first.size, first.offset);
    }
  }
  return {};
}

// Points every tensor at its bytes.
Result<void> attach_data(const FieldReader& reader, uint64_t alignment, std::vector<TensorInfo>& infos) {
  // The header ends inside the file, so rounding up cannot overflow.
  const uint64_t data_begin = round_up(reader.offset(), alignment);
  for (uint64_t i = 0; i < infos.size(); ++i) {
    TensorInfo& info = infos[i];
    const auto begin = checked_add(data_begin, info.offset);
    const auto end = begin ? checked_add(*begin, info.size) : std::nullopt;
    if (!end || *end > reader.size()) {
      return reader.corrupt({.owner = kInfo, .index = i, .part = "offset"}, info.offset_at,
                            "{} bytes of tensor {} at {} + {} reach beyond the end of the file at {}",
                            info.size, printable(info.tensor.name), data_begin, info.offset, reader.size());
    }
    info.tensor.bytes = reader.bytes().subspan(*begin, info.size);
  }
  return {};
}

}  // namespace

int64_t GgufTensor::elements() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

Result<std::vector<GgufTensor>> read_gguf_tensors(FieldReader& reader, const GgufTensorSection& section) {
  std::vector<TensorInfo> infos;
  infos.reserve(section.count);
  for (uint64_t i = 0; i < section.count; ++i)
    infos.push_back(TRY(InfoReader(reader, i, section.alignment).read()));
  TRY(check_names(reader, infos));
  TRY(attach_data(reader, section.alignment, infos));
  TRY(check_overlaps(reader, infos));

  std::vector<GgufTensor> tensors;
  tensors.reserve(infos.size());
  for (TensorInfo& info : infos) tensors.push_back(std::move(info.tensor));
  return tensors;
}

}  // namespace quire
