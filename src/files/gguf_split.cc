#include "files/gguf_split.h"

#include <charconv>
#include <string_view>
#include <type_traits>
#include <utility>

#include "files/field_reader.h"
#include "files/gguf_format.h"

namespace quire {
namespace {

constexpr size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";
constexpr std::string_view kExtension = ".gguf";

struct IntRange {
  int64_t min;
  int64_t max;
};

Result<std::optional<int64_t>> split_int(const GgufPart& part, const std::string& path, std::string_view key,
                                         IntRange range) {
  const auto [value, at] = part.metadata.find(key);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number;
  std::visit(
      [&]<class T>(const T& held) {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          if (std::in_range<int64_t>(held)) number = static_cast<int64_t>(held);
        }
      },
      *value);
  if (!number || *number < range.min || *number > range.max) {
    return fail(ErrorCode::kCorruptFile, std::string(key),
                "{}: {} at byte {} is {}, expected an integer from {} to {}", path, key, at, describe(*value),
                range.min, range.max);
  }
  return number;
}

// "…/model-00002-of-00003.gguf" taken apart.
struct SplitName {
  std::string_view stem;  // "…/model"
  int number = 0;         // from 1
  int count = 0;
};

std::optional<int> digits(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.front() == '-') return std::nullopt;
  return value;
}

std::optional<SplitName> split_name(std::string_view path) {
  if (!path.ends_with(kExtension)) return std::nullopt;
  path.remove_suffix(kExtension.size());
  const size_t tail = 1 + kDigits + kOf.size() + kDigits;
  if (path.size() <= tail) return std::nullopt;
  std::string_view numbers = path.substr(path.size() - tail);
  if (numbers[0] != '-' || numbers.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const auto number = digits(numbers.substr(1, kDigits));
  const auto count = digits(numbers.substr(1 + kDigits + kOf.size()));
  if (!number || !count) return std::nullopt;
  return SplitName{.stem = path.substr(0, path.size() - tail), .number = *number, .count = *count};
}

std::string part_path(const SplitName& name, int number) {
  return fmt::format("{}-{:05}-of-{:05}{}", name.stem, number, name.count, kExtension);
}

}  // namespace

Result<SplitPlace> split_place(const GgufPart& part, const std::string& path) {
  SplitPlace place;
  const auto count = TRY(split_int(part, path, "split.count", {.min = 0, .max = kGgufPartsMax}));
  if (!count || *count <= 1) return place;
  const auto index = TRY(split_int(part, path, "split.no", {.min = 0, .max = *count - 1}));
  if (!index) {
    return fail(ErrorCode::kCorruptFile, "split.no", "{}: split.count is {}, but split.no is missing", path,
                *count);
  }
  const auto tensors =
      TRY(split_int(part, path, "split.tensors.count", {.min = 0, .max = int64_t{kGgufTensorCountMax}}));
  place.part_index = static_cast<int>(*index);
  place.part_count = static_cast<int>(*count);
  place.tensor_count = tensors;
  return place;
}

Result<std::vector<std::string>> split_part_paths(const std::string& path, const SplitPlace& place) {
  if (place.part_count == 1) return std::vector<std::string>{path};
  const auto name = split_name(path);
  if (!name) {
    return fail(ErrorCode::kInvalidArgument, "path",
                "{} is part {} of {} (split.no, split.count), so its name has to end in -{:05}-of-{:05}.gguf",
                path, place.part_index + 1, place.part_count, place.part_index + 1, place.part_count);
  }
  if (name->count != place.part_count) {
    return fail(ErrorCode::kCorruptFile, "split.count", "{}: split.count is {}, the file name says {}", path,
                place.part_count, name->count);
  }
  if (name->number != place.part_index + 1) {
    return fail(ErrorCode::kCorruptFile, "split.no",
                "{}: split.no is {} (part {}), the file name says part {}", path, place.part_index,
                place.part_index + 1, name->number);
  }
  if (place.part_index != 0) {
    return fail(ErrorCode::kInvalidArgument, "path", "{} is part {} of {}, open the first: {}", path,
                name->number, name->count, part_path(*name, 1));
  }
  std::vector<std::string> paths;
  for (int number = 1; number <= place.part_count; ++number) paths.push_back(part_path(*name, number));
  return paths;
}

Result<void> check_split_part(const GgufPart& part, const SplitPartCheck& expected) {
  const auto place = TRY(split_place(part, expected.path));
  if (place.part_count != expected.first.part_count) {
    return fail(ErrorCode::kCorruptFile, "split.count", "{}: split.count is {}, the first part says {}",
                expected.path, place.part_count, expected.first.part_count);
  }
  if (place.part_index != expected.index) {
    return fail(ErrorCode::kCorruptFile, "split.no", "{}: split.no is {}, expected {}", expected.path,
                place.part_index, expected.index);
  }
  if (place.tensor_count != expected.first.tensor_count) {
    return fail(ErrorCode::kCorruptFile, "split.tensors.count",
                "{}: split.tensors.count is {}, the first part says {}", expected.path,
                place.tensor_count.value_or(-1), expected.first.tensor_count.value_or(-1));
  }
  return {};
}

}  // namespace quire
