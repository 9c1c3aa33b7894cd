// SentencePiece model files (tokenizer.model): a protobuf, read without the protobuf library.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quire {

// What a BPE model file says, as views of its bytes. Format: sentencepiece_model.proto of the SentencePiece
// project; numbers of fields stand beside the reader.
struct SentencePieceModel {
  std::vector<std::string_view> pieces;
  std::vector<float> scores;
  std::vector<int32_t> types;
  int64_t unknown = 0, bos = 1, eos = 2, padding = -1;
  bool add_dummy_prefix = true;

  // Errors: kCorruptFile with the offset; kUnsupported for a kind other than BPE and for models that rewrite
  // their text first (a character map, or removal of blanks).
  static Result<SentencePieceModel> parse(std::string_view bytes);
  // Views into this.
  [[nodiscard]] TokenizerFields fields() const;
};

}  // namespace quire
