// Small vocabularies for the tests of this floor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace quire::test {

// A vocabulary that a test may still change before it is built.
struct SmallVocabulary {
  std::string model = "llama";
  std::string pre;
  std::vector<std::string> tokens, merges;
  std::vector<float> scores;
  std::vector<int32_t> types;
  TokenizerFields extra;  // ids and switches

  void add(std::string token, int32_t type, float score = 0) {
    tokens.push_back(std::move(token));
    types.push_back(type);
    scores.push_back(score);
  }

  [[nodiscard]] Result<std::unique_ptr<Tokenizer>> build() const {
    TokenizerFields fields = extra;
    fields.model = model;
    fields.pre = pre;
    fields.tokens.assign(tokens.begin(), tokens.end());
    fields.merges.assign(merges.begin(), merges.end());
    fields.scores = scores;
    fields.token_types = types;
    return Tokenizer::from_fields(fields);
  }
};

// <unk>, <s>, </s>, the 256 bytes (token 3 + byte), then `pieces` with falling scores.
inline SmallVocabulary sentence_vocabulary(const std::vector<std::string>& pieces) {
  SmallVocabulary vocabulary;
  vocabulary.add("<unk>", 2);
  vocabulary.add("<s>", 3);
  vocabulary.add("</s>", 3);
  for (int byte = 0; byte < 256; ++byte) vocabulary.add(fmt::format("<0x{:02X}>", byte), 6);
  float score = 0;
  for (const std::string& piece : pieces) vocabulary.add(piece, 1, score -= 1);
  vocabulary.extra.bos = 1;
  vocabulary.extra.eos = 2;
  vocabulary.extra.unknown = 0;
  return vocabulary;
}

// The printable ASCII characters and the blank "Ġ" as single tokens, then control tokens.
inline SmallVocabulary letter_vocabulary(const std::vector<std::string>& controls) {
  SmallVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  for (char c = '!'; c <= '~'; ++c) vocabulary.add(std::string(1, c), 1);
  vocabulary.add("Ġ", 1);
  for (const std::string& control : controls) vocabulary.add(control, 3);
  vocabulary.scores.clear();
  return vocabulary;
}

}  // namespace quire::test
