// Strings to tokens and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace quire {

// What a GGUF file says about its tokenizer (tokenizer.ggml.*). Views: nothing is kept after the call.
struct TokenizerFields {
  std::string_view model;  // "gpt2", "llama", "bert"
  std::string_view pre;    // pre-tokenizer name, e.g. "qwen2"; "" when absent
  std::vector<std::string_view> tokens;
  std::vector<std::string_view> merges;
  std::span<const float> scores;  // [token] or empty
  std::span<const int32_t>
      token_types;  // [token] or empty: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::optional<TokenId> bos, eos, eot, unknown, separator, padding;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

enum class SpecialTokens : uint8_t {
  kParse,   // control tokens written in the text become that token
  kAsText,  // they are ordinary characters
};

// Immutable; any thread may use it. Costs: see docs/text.md; encode is n log n in the longest word.
class Tokenizer {
 public:
  // Errors: kUnsupported for an unknown model or pre-tokenizer (named), kCorruptFile for inconsistent tables.
  static Result<std::unique_ptr<Tokenizer>> from_fields(const TokenizerFields& fields);
  // A Hugging Face tokenizer.json; `config_json` is the tokenizer_config.json beside it, or empty. Errors:
  // kCorruptFile.
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view json,
                                                      std::string_view config_json = {});
  // A SentencePiece model file (tokenizer.model) of kind BPE. Errors: kUnsupported for other kinds,
  // kCorruptFile with the offset.
  static Result<std::unique_ptr<Tokenizer>> from_sentencepiece(std::string_view bytes);
  ~Tokenizer();

  // Ids without BOS and EOS. Errors: kInvalidArgument when `text` is not UTF-8.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, SpecialTokens specials) const;
  // As the model wants a prompt: BOS/EOS are added where the file says so and not already there.
  [[nodiscard]] Result<std::vector<TokenId>> encode_prompt(std::string_view text,
                                                           SpecialTokens specials) const;

  [[nodiscard]] int vocab_size() const;
  // Raw bytes that the token stands for (not necessarily whole UTF-8). Valid while the tokenizer lives.
  // A leading blank of SentencePiece kinds is included. Empty for control, unknown and unused tokens, and for
  // an id outside the vocabulary.
  [[nodiscard]] std::string_view token_bytes(TokenId id) const;
  // The token as the vocabulary writes it (e.g. "Ġthe", "▁the", "<0x0A>").
  [[nodiscard]] std::string_view token_piece(TokenId id) const;
  [[nodiscard]] TokenKind token_kind(TokenId id) const;
  // True when decoding drops one leading blank of the first piece (SentencePiece with a dummy prefix).
  [[nodiscard]] bool strips_leading_blank() const;

  // Whole text; invalid bytes become U+FFFD; control tokens yield no text.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const;

  [[nodiscard]] std::optional<TokenId> bos() const;
  [[nodiscard]] std::optional<TokenId> eos() const;
  // All ids that end an answer: eos, eot and control tokens of that meaning (<|im_end|>, <end_of_turn>, …).
  [[nodiscard]] std::span<const TokenId> end_tokens() const;
  [[nodiscard]] std::string_view kind_name() const;  // "gpt2/qwen2", "llama/default", "bert", "json"

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
