#include "engine/model_package.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "core/kv_geometry.h"
#include "engine/engine_plan.h"
#include "files/field_reader.h"
#include "kernels/packed_matrix.h"
#include "kv/kv_store.h"
#include "model/model.h"
#include "model/weight_names.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kTemplateKey = "tokenizer.chat_template";
constexpr std::string_view kJsonKey = "tokenizer.huggingface.json";
constexpr int64_t kNoToken = 0xffffffff;  // as some converters write "none"; others write -1

// Reads tokenizer.ggml.* of one file, which outlives it. Errors: kCorruptFile naming the key.
class TokenizerKeys {
 public:
  explicit TokenizerKeys(const GgufFile& file) : file_(file) {}

  Result<std::string_view> text(std::string_view key) const {
    return TRY(file_.get_string(full(key)))
    .value_or("");
  }

  Result<std::vector<std::string_view>> texts(std::string_view key) const {
    return elements<std::string_view>(key, "strings");
  }

  Result<std::vector<float>> numbers(std::string_view key) const { return elements<float>(key, "float32"); }

  // Written as int32, by some converters as uint32.
  Result<std::vector<int32_t>> integers(std::string_view key) const {
    const GgufArray* array = TRY(file_.get_array(full(key)));
    if (array == nullptr) return std::vector<int32_t>{};
    if (const auto* values = std::get_if<std::vector<uint32_t>>(&array->elements))
      return std::vector<int32_t>(values->begin(), values->end());
    return elements<int32_t>(key, "int32");
  }

  Result<std::optional<bool>> flag(std::string_view key) const { return file_.get_bool(full(key)); }

  Result<std::optional<TokenId>> token(std::string_view key, size_t vocab_size) const {
    const auto value = TRY(file_.get_int(full(key)));
    if (!value || *value == kNoToken || *value == -1) return std::nullopt;
    if (*value < 0 || static_cast<uint64_t>(*value) >= vocab_size) {
      return wrong(key, fmt::format("is {}, the vocabulary has {} tokens", *value, vocab_size));
    }
    return static_cast<TokenId>(*value);
  }

 private:
  static std::string full(std::string_view key) { return fmt::format("{}{}", kPrefix, key); }

  [[nodiscard]] std::unexpected<Error> wrong(std::string_view key, std::string_view text) const {
    const std::string name = full(key);
    return fail(ErrorCode::kCorruptFile, name, "{}: {} at byte {} {}", file_.path(), name,
                file_.offset_of(name).value_or(0), text);
  }

  template <class T>
  Result<std::vector<T>> elements(std::string_view key, std::string_view type) const {
    const GgufArray* array = TRY(file_.get_array(full(key)));
    if (array == nullptr) return std::vector<T>{};
    const auto* values = std::get_if<std::vector<T>>(&array->elements);
    if (values == nullptr) return wrong(key, fmt::format("is not an array of {}", type));
    return *values;
  }

  const GgufFile& file_;
};

Result<void> read_special_tokens(const TokenizerKeys& keys, TokenizerFields& fields) {
  const size_t count = fields.tokens.size();
  fields.bos = TRY(keys.token("bos_token_id", count));
  // WordPiece models begin with [CLS].
  if (!fields.bos) fields.bos = TRY(keys.token("cls_token_id", count));
  fields.eos = TRY(keys.token("eos_token_id", count));
  fields.eot = TRY(keys.token("eot_token_id", count));
  fields.unknown = TRY(keys.token("unknown_token_id", count));
  fields.separator = TRY(keys.token("seperator_token_id", count));  // the key is spelt so
  if (!fields.separator) fields.separator = TRY(keys.token("separator_token_id", count));
  fields.padding = TRY(keys.token("padding_token_id", count));
  return {};
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// "gpt2/qwen2", "llama/default", "bert"; "json" for an embedded tokenizer.json; "none".
Result<std::string> tokenizer_kind(const GgufFile& file) {
  const TokenizerKeys keys(file);
  const auto model = TRY(keys.text("model"));
  if (model.empty()) return std::string(file.find(kJsonKey) == nullptr ? "none" : "json");
  if (model == "bert") return std::string(model);
  const auto pre = TRY(keys.text("pre"));
  return fmt::format("{}/{}", printable(model), pre.empty() ? "default" : printable(pre));
}

std::vector<TensorTypeCount> count_tensor_types(const GgufFile& file) {
  std::vector<TensorTypeCount> counts;
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string_view type = tensor_type_info(tensor.type).name;
    auto found = std::ranges::find(counts, type, &TensorTypeCount::type);
    if (found == counts.end()) {
      counts.push_back({.type = std::string(type)});
      found = std::prev(counts.end());
    }
    found->tensors += 1;
    found->bytes += tensor.bytes.size();
  }
  std::ranges::sort(counts, std::ranges::greater{}, &TensorTypeCount::bytes);
  return counts;
}

// As Model::load() lays them out: matrices in panels, vectors as float32.
Result<uint64_t> packed_bytes(const GgufFile& file, const ModelSpec& spec) {
  uint64_t bytes = 0;
  for (const WeightName& weight : all_weight_names(spec)) {
    const GgufTensor& tensor = *TRY(find_weight(file, weight));
    if (tensor.shape.size() == 2) {
      const auto panels = static_cast<uint64_t>(ceil_div<int64_t>(tensor.shape[0], kPanelRows));
      bytes += panels * packed_panel_bytes(tensor.type, static_cast<int>(tensor.shape[1]));
    } else {
      bytes += static_cast<uint64_t>(tensor.elements()) * sizeof(float);
    }
  }
  return bytes;
}

Result<void> describe_memory(const ModelSpec& spec, KvType kv_type, PackageInfo& info) {
  const KvGeometry geometry = spec.kv_geometry(kv_type);
  info.kv_bytes_per_token = kv_token_bytes(geometry);
  const EngineOptions defaults;
  const auto blocks = TRY(plan_pools(geometry, {.context_length = spec.context_length,
                                                .step_tokens_max = defaults.step_tokens_max,
                                                .kv_bytes = 0,
                                                .bytes_max = std::numeric_limits<int64_t>::max()}));
  for (size_t group = 0; group < blocks.size(); ++group) {
    info.kv_bytes_full_context +=
        static_cast<uint64_t>(blocks[group]) * kv_block_bytes(geometry, static_cast<int>(group));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> tokenizer_of(const GgufFile& file) {
  const TokenizerKeys keys(file);
  TokenizerFields fields;
  fields.model = TRY(keys.text("model"));
  if (fields.model.empty()) {
    if (const auto json = TRY(file.get_string(kJsonKey))) return Tokenizer::from_json(*json);
    return fail(ErrorCode::kCorruptFile, "tokenizer.ggml.model", "{}: tokenizer.ggml.model is missing",
                file.path());
  }
  fields.pre = TRY(keys.text("pre"));
  fields.tokens = TRY(keys.texts("tokens"));
  if (fields.tokens.empty() ||
      fields.tokens.size() > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    return fail(ErrorCode::kCorruptFile, "tokenizer.ggml.tokens", "{}: tokenizer.ggml.tokens has {} tokens",
                file.path(), fields.tokens.size());
  }
  fields.merges = TRY(keys.texts("merges"));
  const auto scores = TRY(keys.numbers("scores"));
  const auto types = TRY(keys.integers("token_type"));
  fields.scores = scores;
  fields.token_types = types;
  fields.add_bos = TRY(keys.flag("add_bos_token"));
  fields.add_eos = TRY(keys.flag("add_eos_token"));
  fields.add_space_prefix = TRY(keys.flag("add_space_prefix"));
  TRY(read_special_tokens(keys, fields));
  return Tokenizer::from_fields(fields);
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path) {
  std::error_code error;
  fs::path source = path;
  if (fs::is_directory(source, error)) {
    const fs::path folder = source;
    source = folder / "tokenizer.json";
    if (!fs::exists(source, error) && fs::exists(folder / "tokenizer.model", error))
      source = folder / "tokenizer.model";
  }
  const MappedFile file = TRY(MappedFile::open(source.string()));
  const std::string_view text = text_of(file);
  if (text.starts_with("GGUF")) return tokenizer_of(TRY(GgufFile::open(source.string())));
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] != '{') return Tokenizer::from_sentencepiece(text);
  const fs::path config_path = source.parent_path() / "tokenizer_config.json";
  if (!fs::is_regular_file(config_path, error)) return Tokenizer::from_json(text);
  const MappedFile config = TRY(MappedFile::open(config_path.string()));
  return Tokenizer::from_json(text, text_of(config));
}

Result<std::unique_ptr<ChatTemplate>> chat_template_of(const GgufFile& file) {
  const auto source = TRY(file.get_string(kTemplateKey));
  if (!source) return nullptr;
  return ChatTemplate::compile(*source);
}

Result<PackageInfo> describe_package(const std::string& path, const std::string& kv_type) {
  const auto type = kv_type_from_name(kv_type);
  if (!type) {
    return fail(ErrorCode::kInvalidArgument, "kv_type", "kv_type is '{}', known are {}", kv_type,
                kv_type_names());
  }
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return fail(ErrorCode::kUnsupported, "path", "{} is a folder, this build describes GGUF files", path);
  }
  const GgufFile file = TRY(GgufFile::open(path));
  PackageInfo info;
  info.path = path;
  info.gguf_version = file.version();
  info.file_bytes = file.file_bytes();
  info.tokenizer = TRY(tokenizer_kind(file));
  info.tensor_types = count_tensor_types(file);
  for (const GgufTensor& tensor : file.tensors()) info.parameters += static_cast<uint64_t>(tensor.elements());
  if (const auto source = TRY(file.get_string(kTemplateKey))) info.chat_template = std::string(*source);

  const auto spec = read_model_spec(file);
  if (!spec) {
    // A vocabulary may belong to a model that this build cannot run; it can still be described.
    if (!file.tensors().empty()) return std::unexpected(spec.error());
    info.architecture = std::string(TRY(file.get_string("general.architecture")).value_or(""));
    info.name = std::string(TRY(file.get_string("general.name")).value_or(""));
    const GgufArray* tokens = TRY(file.get_array("tokenizer.ggml.tokens"));
    info.vocab_size = tokens == nullptr ? 0 : static_cast<int>(tokens->size());
    return info;
  }
  info.architecture = spec->architecture;
  info.name = spec->name;
  info.layers = static_cast<int>(spec->layers.size());
  info.width = spec->width;
  info.vocab_size = spec->vocab_size;
  info.context_length = spec->context_length;
  if (file.tensors().empty()) return info;
  info.packed_weight_bytes = TRY(packed_bytes(file, *spec));
  TRY(describe_memory(*spec, *type, info));
  return info;
}

}  // namespace quire
