// Recorded tokenizer and template answers of other implementations, as data. Where they come from: README of
// the shared data.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "tests/data_paths.h"
#include "text/tokenizer.h"

namespace quire::test {

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
