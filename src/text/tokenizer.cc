#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/text_library.h"

namespace quire {

struct Tokenizer::Impl {
  TokenizerHandle handle;
  quire_text_table table{};
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
  std::vector<TokenId> end_tokens;

  explicit Impl(TokenizerHandle owned) : handle(std::move(owned)) {
    quire_text_tokenizer_table(handle.get(), &table);
    prefix.assign(table.prefix, table.prefix + table.prefix_size);
    suffix.assign(table.suffix, table.suffix + table.suffix_size);
    end_tokens.assign(table.ends, table.ends + table.ends_size);
  }

  [[nodiscard]] bool contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < table.count; }
};

namespace {

std::vector<quire_text_span> spans_of(const std::vector<std::string_view>& texts) {
  std::vector<quire_text_span> spans;
  spans.reserve(texts.size());
  for (const std::string_view text : texts) spans.push_back(text_span(text));
  return spans;
}

int64_t id_or_none(std::optional<TokenId> id) {
  return id.value_or(-1);
}

int32_t switch_or_none(std::optional<bool> value) {
  return value ? static_cast<int32_t>(*value) : -1;
}

std::optional<TokenId> some_id(int64_t id) {
  return id < 0 ? std::nullopt : std::optional<TokenId>(static_cast<TokenId>(id));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_fields(const TokenizerFields& fields) {
  CHECK(quire_text_abi_version() == QUIRE_TEXT_ABI_VERSION);
  const std::vector<quire_text_span> tokens = spans_of(fields.tokens);
  const std::vector<quire_text_span> merges = spans_of(fields.merges);
  quire_text_fields input{};
  input.model = text_span(fields.model);
  input.pre = text_span(fields.pre);
  input.tokens = tokens.data();
  input.token_count = tokens.size();
  input.merges = merges.data();
  input.merge_count = merges.size();
  input.scores = fields.scores.data();
  input.score_count = fields.scores.size();
  input.types = fields.token_types.data();
  input.type_count = fields.token_types.size();
  input.bos = id_or_none(fields.bos);
  input.eos = id_or_none(fields.eos);
  input.eot = id_or_none(fields.eot);
  input.unknown = id_or_none(fields.unknown);
  input.separator = id_or_none(fields.separator);
  input.padding = id_or_none(fields.padding);
  input.add_bos = switch_or_none(fields.add_bos);
  input.add_eos = switch_or_none(fields.add_eos);
  input.add_space_prefix = switch_or_none(fields.add_space_prefix);
  quire_text_error error{};
  TokenizerHandle handle(quire_text_tokenizer_from_fields(&input, &error));
  if (!handle) return take_error(error);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Impl>(std::move(handle))));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view json, std::string_view config_json) {
  CHECK(quire_text_abi_version() == QUIRE_TEXT_ABI_VERSION);
  quire_text_error error{};
  TokenizerHandle handle(quire_text_tokenizer_from_json(text_span(json), text_span(config_json), &error));
  if (!handle) return take_error(error);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Impl>(std::move(handle))));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_sentencepiece(std::string_view bytes) {
  const SentencePieceModel model = TRY(SentencePieceModel::parse(bytes));
  return from_fields(model.fields());
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, SpecialTokens specials) const {
  quire_text_ids ids{};
  quire_text_error error{};
  const int32_t parse = specials == SpecialTokens::kParse ? 1 : 0;
  if (quire_text_encode(impl_->handle.get(), text_span(text), parse, &ids, &error) != 0)
    return take_error(error);
  std::vector<TokenId> encoded(ids.data, ids.data + ids.size);
  quire_text_ids_free(ids);
  return encoded;
}

Result<std::vector<TokenId>> Tokenizer::encode_prompt(std::string_view text, SpecialTokens specials) const {
  std::vector<TokenId> ids = TRY(encode(text, specials));
  const std::vector<TokenId>& prefix = impl_->prefix;
  const std::vector<TokenId>& suffix = impl_->suffix;
  const bool has_prefix =
      ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
  if (!has_prefix) ids.insert(ids.begin(), prefix.begin(), prefix.end());
  const bool has_suffix =
      ids.size() >= suffix.size() && std::equal(suffix.rbegin(), suffix.rend(), ids.rbegin());
  if (!has_suffix) ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

int Tokenizer::vocab_size() const {
  return static_cast<int>(impl_->table.count);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (!impl_->contains(id)) return {};
  const quire_text_table& table = impl_->table;
  const uint32_t begin = table.byte_offsets[id];
  return {reinterpret_cast<const char*>(table.bytes) + begin, table.byte_offsets[id + 1] - begin};
}

std::string_view Tokenizer::token_piece(TokenId id) const {
  if (!impl_->contains(id)) return {};
  const quire_text_table& table = impl_->table;
  const uint32_t begin = table.piece_offsets[id];
  return {reinterpret_cast<const char*>(table.piece_bytes) + begin, table.piece_offsets[id + 1] - begin};
}

TokenKind Tokenizer::token_kind(TokenId id) const {
  return impl_->contains(id) ? static_cast<TokenKind>(impl_->table.kinds[id]) : TokenKind::kUnused;
}

bool Tokenizer::strips_leading_blank() const {
  return impl_->table.strips_leading_blank != 0;
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  Detokenizer detokenizer(*this, {});
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

std::optional<TokenId> Tokenizer::bos() const {
  return some_id(impl_->table.bos);
}

std::optional<TokenId> Tokenizer::eos() const {
  return some_id(impl_->table.eos);
}

std::span<const TokenId> Tokenizer::end_tokens() const {
  return impl_->end_tokens;
}

std::string_view Tokenizer::kind_name() const {
  return {reinterpret_cast<const char*>(impl_->table.name.data), impl_->table.name.size};
}

}  // namespace quire
