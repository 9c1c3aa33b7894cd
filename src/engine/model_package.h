// What MODEL means on a command line: a file, or a name in the model cache, and the text side of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "files/gguf_file.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire {

// The path that MODEL stands for: itself when it exists, else a model of that name in the cache
// ($QUIRE_MODELS, default ~/.cache/quire/models). Error kNotFound lists what the cache holds.
[[nodiscard]] Result<std::string> resolve_model(const std::string& model);

// Where packed weights are kept when nobody says otherwise: $QUIRE_PACKED, default ~/.cache/quire/packed. ""
// where that is "off", or where there is no home.
[[nodiscard]] std::string default_packed_cache();

// The tokenizer of a GGUF (also a vocabulary-only one), a tokenizer.json, a SentencePiece tokenizer.model, or
// a Hugging Face folder. A tokenizer_config.json beside a tokenizer.json is heeded.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path);
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> tokenizer_of(const GgufFile& file);
// The chat template in the file; nullptr when it has none.
[[nodiscard]] Result<std::unique_ptr<ChatTemplate>> chat_template_of(const GgufFile& file);

// One line of the report of `quire info`.
struct TensorTypeCount {
  std::string type;
  int tensors = 0;
  uint64_t bytes = 0;
};

// Everything that `quire info` tells of a file, without loading its weights.
struct PackageInfo {
  std::string path;
  uint32_t gguf_version = 0;
  uint64_t file_bytes = 0;
  std::string architecture, name;
  int layers = 0, width = 0, vocab_size = 0, context_length = 0;
  uint64_t parameters = 0;
  std::string tokenizer;  // kind name
  std::optional<std::string> chat_template;
  std::vector<TensorTypeCount> tensor_types;
  uint64_t kv_bytes_per_token = 0;     // with the KV type asked for
  uint64_t kv_bytes_full_context = 0;  // windows taken into account
  uint64_t packed_weight_bytes = 0;
};
[[nodiscard]] Result<PackageInfo> describe_package(const std::string& path, const std::string& kv_type);

}  // namespace quire
