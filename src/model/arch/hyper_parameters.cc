#include "model/arch/hyper_parameters.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "files/field_reader.h"

namespace quire {

HyperParameters::HyperParameters(const GgufFile& file, std::string_view architecture)
    : file_(file), architecture_(architecture) {}

std::string HyperParameters::full_key(std::string_view key) const {
  return fmt::format("{}.{}", architecture_, key);
}

std::unexpected<Error> HyperParameters::wrong(ErrorCode code, std::string_view key,
                                              std::string_view text) const {
  const std::string full = printable(full_key(key));
  return fail(code, full, "{}: {} at byte {} {}", file_.path(), full,
              file_.offset_of(full_key(key)).value_or(0), text);
}

std::unexpected<Error> HyperParameters::missing(std::string_view key) const {
  const std::string full = full_key(key);
  return fail(ErrorCode::kCorruptFile, full, "{}: {} is missing", file_.path(), full);
}

Result<std::optional<int>> HyperParameters::optional_integer(std::string_view key, IntRange range) {
  const std::string full = full_key(key);
  read_.insert(full);
  const auto value = TRY(file_.get_int(full));
  if (!value) return std::nullopt;
  if (*value < range.min || *value > range.max) {
    return wrong(ErrorCode::kCorruptFile, key,
                 fmt::format("is {}, allowed are {} to {}", *value, range.min, range.max));
  }
  return static_cast<int>(*value);
}

Result<int> HyperParameters::integer(std::string_view key, IntRange range) {
  const auto value = TRY(optional_integer(key, range));
  if (!value) return missing(key);
  return *value;
}

Result<std::optional<double>> HyperParameters::optional_number(std::string_view key, FloatRange range) {
  const std::string full = full_key(key);
  read_.insert(full);
  const auto value = TRY(file_.get_float(full));
  if (!value) return std::nullopt;
  if (!(*value >= range.min && *value <= range.max)) {  // also NaN
    return wrong(ErrorCode::kCorruptFile, key,
                 fmt::format("is {}, allowed are {} to {}", *value, range.min, range.max));
  }
  return *value;
}

Result<double> HyperParameters::number(std::string_view key, FloatRange range) {
  const auto value = TRY(optional_number(key, range));
  if (!value) return missing(key);
  return *value;
}

Result<std::optional<bool>> HyperParameters::optional_flag(std::string_view key) {
  const std::string full = full_key(key);
  read_.insert(full);
  return file_.get_bool(full);
}

Result<std::optional<std::string_view>> HyperParameters::optional_string(std::string_view key) {
  const std::string full = full_key(key);
  read_.insert(full);
  return file_.get_string(full);
}

bool HyperParameters::is_array(std::string_view key) const {
  const GgufValue* value = file_.find(full_key(key));
  return value != nullptr && std::holds_alternative<std::shared_ptr<const GgufArray>>(*value);
}

Result<std::optional<std::vector<int>>> HyperParameters::optional_per_layer(std::string_view key,
                                                                            PerLayer shape) {
  if (!is_array(key)) {
    const auto value = TRY(optional_integer(key, shape.range));
    if (!value) return std::nullopt;
    return std::vector<int>(shape.layers, *value);
  }
  const std::string full = full_key(key);
  read_.insert(full);
  const GgufArray& array = *TRY(file_.get_array(full));
  if (array.size() != static_cast<size_t>(shape.layers)) {
    return wrong(ErrorCode::kCorruptFile, key,
                 fmt::format("has {} values for {} layers", array.size(), shape.layers));
  }
  std::vector<int> values;
  auto take = [&]<class T>(const std::vector<T>& elements) -> Result<void> {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      for (T element : elements) {
        if (std::cmp_less(element, shape.range.min) || std::cmp_greater(element, shape.range.max)) {
          return wrong(ErrorCode::kCorruptFile, key,
                       fmt::format("is {} for layer {}, allowed are {} to {}", element, values.size(),
                                   shape.range.min, shape.range.max));
        }
        values.push_back(static_cast<int>(element));
      }
      return {};
    } else {
      return wrong(ErrorCode::kCorruptFile, key, "is an array of another type, expected integers");
    }
  };
  TRY(std::visit(take, array.elements));
  return values;
}

Result<std::vector<bool>> HyperParameters::flags_per_layer(std::string_view key, int layers) {
  const std::string full = full_key(key);
  read_.insert(full);
  const GgufArray* array = TRY(file_.get_array(full));
  if (array == nullptr) return missing(key);
  const auto* flags = std::get_if<std::vector<bool>>(&array->elements);
  if (flags == nullptr) return wrong(ErrorCode::kCorruptFile, key, "is not an array of bools");
  if (flags->size() != static_cast<size_t>(layers)) {
    return wrong(ErrorCode::kCorruptFile, key,
                 fmt::format("has {} values for {} layers", flags->size(), layers));
  }
  return *flags;
}

void HyperParameters::ignore(std::string_view key) {
  std::string full = full_key(key);
  if (full.ends_with('.')) {
    ignored_prefixes_.push_back(std::move(full));
  } else {
    read_.insert(std::move(full));
  }
}

Result<void> HyperParameters::refuse_unread() const {
  const std::string prefix = architecture_ + ".";
  for (const auto& [key, value] : file_.metadata()) {
    if (!key.starts_with(prefix) || read_.contains(key)) continue;
    const bool ignored = std::ranges::any_of(
        ignored_prefixes_, [&](const std::string& begin) { return key.starts_with(begin); });
    if (ignored) continue;
    return wrong(ErrorCode::kUnsupported, key.substr(prefix.size()),
                 "is a hyper-parameter that this build does not know");
  }
  return {};
}

}  // namespace quire
