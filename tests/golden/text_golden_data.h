// Recorded tokenizer and template answers of other implementations, as data. Where they come from: README of
// the shared data.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "text/tokenizer.h"

namespace quire::test {

// $QUIRE_SHARED, default ../shared beside the repository; $QUIRE_MODELS, default the model cache.
[[nodiscard]] std::string shared_data(std::string_view path);
[[nodiscard]] std::string model_file(std::string_view path);
[[nodiscard]] bool file_exists(const std::string& path);
[[nodiscard]] std::string read_bytes(const std::string& path);

// A pair X.inp, X.out: texts, and the ids of each without BOS.
struct ConformancePair {
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> ids;
};
[[nodiscard]] ConformancePair read_pair(const std::string& stem);

// A byte-level vocabulary as encoder.json (token → id) and vocab.bpe (one merge a line); ids may leave no
// gaps.
[[nodiscard]] Result<std::unique_ptr<Tokenizer>> read_bpe_files(const std::string& encoder_json,
                                                                const std::string& vocab_bpe,
                                                                std::string_view pre);

}  // namespace quire::test
