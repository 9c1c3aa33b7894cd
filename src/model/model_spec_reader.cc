// read_model_spec(): the table of architectures, and the checks that hold for all of them.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "files/field_reader.h"
#include "model/arch/architecture.h"
#include "model/model.h"
#include "model/weight_names.h"

namespace quire {
namespace {

struct Architecture {
  std::string_view name;
  Result<ModelSpec> (*read)(HyperParameters&);
};
constexpr std::array kArchitectures = {
    Architecture{"gemma3", read_gemma3_spec},
    Architecture{"llama", read_llama_spec},
    Architecture{"qwen2", read_qwen2_spec},
};
constexpr auto kArchitectureNames = [] {
  std::array<std::string_view, kArchitectures.size()> names;
  std::ranges::transform(kArchitectures, names.begin(), &Architecture::name);
  return names;
}();

// Weights of image encoders, which some files carry beside the text model.
constexpr std::string_view kIgnoredTensorPrefixes[] = {"v.", "mm."};
// Read with the hyper-parameters.
constexpr std::string_view kRopeFreqs = "rope_freqs.weight";

Result<const Architecture*> find_architecture(const GgufFile& file) {
  const std::string key = "general.architecture";
  const auto name = TRY(file.get_string(key));
  if (!name) return fail(ErrorCode::kCorruptFile, key, "{}: {} is missing", file.path(), key);
  const auto found = std::ranges::find(kArchitectures, *name, &Architecture::name);
  if (found == kArchitectures.end()) {
    return fail(ErrorCode::kUnsupported, key, "{}: {} at byte {} is \"{}\", this build knows {}", file.path(),
                key, file.offset_of(key).value_or(0), printable(*name), fmt::join(kArchitectureNames, ", "));
  }
  return &*found;
}

// Adapters and image encoders are GGUF files of their own.
Result<void> check_file_type(const GgufFile& file) {
  const std::string key = "general.type";
  const auto type = TRY(file.get_string(key));
  if (!type || *type == "model") return {};
  return fail(ErrorCode::kUnsupported, key, "{}: {} at byte {} is \"{}\", only a \"model\" can run",
              file.path(), key, file.offset_of(key).value_or(0), printable(*type));
}

Result<void> check_layer_groups(const GgufFile& file, const ModelSpec& spec) {
  const size_t groups = spec.kv_geometry(KvType::kF16).groups.size();
  if (groups <= static_cast<size_t>(kLayerGroupsMax)) return {};
  const std::string key = spec.architecture + ".attention.head_count_kv";
  return fail(ErrorCode::kUnsupported, key, "{}: {} and the windows make {} kinds of layers, the limit is {}",
              file.path(), key, groups, kLayerGroupsMax);
}

// Every weight is there in its shape, and there is none that the spec does not use: a bias or a scale left
// out would make wrong answers, not errors.
Result<void> check_weights(const GgufFile& file, const ModelSpec& spec) {
  std::set<std::string, std::less<>> used;
  for (WeightName& weight : all_weight_names(spec)) {
    TRY(find_weight(file, weight));
    used.insert(std::move(weight.name));
  }
  if (!spec.layers[0].rope.freq_divisors.empty()) used.emplace(kRopeFreqs);
  for (const GgufTensor& tensor : file.tensors()) {
    if (used.contains(tensor.name)) continue;
    const bool ignored = std::ranges::any_of(
        kIgnoredTensorPrefixes, [&](std::string_view prefix) { return tensor.name.starts_with(prefix); });
    if (ignored) continue;
    const std::string name = printable(tensor.name);
    return fail(ErrorCode::kUnsupported, name,
                "{}: tensor {} has no part in architecture {} as this build has it", file.path(), name,
                spec.architecture);
  }
  return {};
}

}  // namespace

Result<ModelSpec> read_model_spec(const GgufFile& file) {
  TRY(check_file_type(file));
  const Architecture* architecture = TRY(find_architecture(file));
  HyperParameters parameters(file, architecture->name);
  ModelSpec spec = TRY(architecture->read(parameters));
  TRY(parameters.refuse_unread());
  TRY(check_layer_groups(file, spec));
  // A vocabulary-only file has hyper-parameters and no weights.
  if (!file.tensors().empty()) TRY(check_weights(file, spec));
  return spec;
}

std::span<const std::string_view> known_architectures() {
  return kArchitectureNames;
}

}  // namespace quire
