#include "text/sentencepiece_model.h"

#include <bit>
#include <cstring>
#include <utility>

namespace quire {

namespace {

constexpr std::string_view kField = "tokenizer.model";
constexpr size_t kPieceMax = size_t{1} << 22;

// One field of a protobuf message: its number, and its value as an integer or as bytes.
struct ProtoField {
  uint64_t number = 0;
  uint64_t integer = 0;
  std::string_view bytes;
  bool is_bytes = false;
};

// Walks the fields of one message. Every length is checked against what is left.
class ProtoReader {
 public:
  ProtoReader(std::string_view bytes, size_t offset) : bytes_(bytes), offset_(offset) {}

  [[nodiscard]] bool done() const { return at_ == bytes_.size(); }
  [[nodiscard]] size_t offset() const { return offset_ + at_; }

  Result<ProtoField> next() {
    const uint64_t key = TRY(varint());
    ProtoField field{.number = key >> 3, .integer = 0, .bytes = {}, .is_bytes = false};
    switch (key & 7) {
      case 0:
        field.integer = TRY(varint());
        return field;
      case 1:
        field.integer = TRY(fixed(8));
        return field;
      case 5:
        field.integer = TRY(fixed(4));
        return field;
      case 2: {
        const uint64_t size = TRY(varint());
        field.bytes = TRY(take(size));
        field.is_bytes = true;
        return field;
      }
      default:
        return broken(fmt::format("wire type is {}, known are 0, 1, 2 and 5", key & 7));
    }
  }

 private:
  [[nodiscard]] std::unexpected<Error> broken(const std::string& what) const {
    return fail(ErrorCode::kCorruptFile, std::string(kField), "{} at byte {}: {}", kField, offset(), what);
  }

  Result<std::string_view> take(uint64_t size) {
    const size_t left = bytes_.size() - at_;
    if (size > left) return broken(fmt::format("a field of {} bytes, {} are left", size, left));
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }

  Result<uint64_t> fixed(size_t size) {
    const std::string_view raw = TRY(take(size));
    uint64_t value = 0;
    std::memcpy(&value, raw.data(), size);
    return value;
  }

  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view raw = TRY(take(1));
      const auto byte = static_cast<uint8_t>(raw[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return broken("a number of more than 10 bytes");
  }

  std::string_view bytes_;
  size_t offset_;
  size_t at_ = 0;
};

Result<void> read_piece(std::string_view bytes, size_t offset, SentencePieceModel& model) {
  std::string_view piece;
  float score = 0;
  int32_t type = 1;
  ProtoReader reader(bytes, offset);
  while (!reader.done()) {
    const ProtoField field = TRY(reader.next());
    if (field.number == 1 && field.is_bytes) piece = field.bytes;
    if (field.number == 2) score = std::bit_cast<float>(static_cast<uint32_t>(field.integer));
    if (field.number == 3) type = static_cast<int32_t>(field.integer);
  }
  if (model.pieces.size() == kPieceMax) {
    return fail(ErrorCode::kCorruptFile, std::string(kField), "{} has more than {} pieces", kField,
                kPieceMax);
  }
  model.pieces.push_back(piece);
  model.scores.push_back(score);
  model.types.push_back(type);
  return {};
}

Result<void> read_trainer(std::string_view bytes, size_t offset, SentencePieceModel& model) {
  constexpr uint64_t kBpe = 2;
  uint64_t kind = 1;
  ProtoReader reader(bytes, offset);
  while (!reader.done()) {
    const ProtoField field = TRY(reader.next());
    const auto id = static_cast<int32_t>(field.integer);
    switch (field.number) {
      case 3:
        kind = field.integer;
        break;
      case 40:
        model.unknown = id;
        break;
      case 41:
        model.bos = id;
        break;
      case 42:
        model.eos = id;
        break;
      case 43:
        model.padding = id;
        break;
      default:
        break;
    }
  }
  if (kind != kBpe) {
    return fail(ErrorCode::kUnsupported, "model_type", "{}: model_type is {}, known is {} (BPE)", kField,
                kind, kBpe);
  }
  return {};
}

Result<void> read_normalizer(std::string_view bytes, size_t offset, SentencePieceModel& model) {
  std::string_view name = "unnamed";
  std::string_view characters;
  bool removes_blanks = true;
  ProtoReader reader(bytes, offset);
  while (!reader.done()) {
    const ProtoField field = TRY(reader.next());
    if (field.number == 1 && field.is_bytes) name = field.bytes;
    if (field.number == 2 && field.is_bytes) characters = field.bytes;
    if (field.number == 3) model.add_dummy_prefix = field.integer != 0;
    if (field.number == 4) removes_blanks = field.integer != 0;
  }
  if (!characters.empty() || removes_blanks) {
    return fail(ErrorCode::kUnsupported, "normalizer_spec",
                "{}: normalizer {} rewrites the text ({} bytes of character map, remove_extra_whitespaces "
                "{}), known is "
                "only the identity",
                kField, name, characters.size(), removes_blanks);
  }
  return {};
}

std::optional<TokenId> some_id(int64_t id) {
  return id < 0 ? std::nullopt : std::optional<TokenId>(static_cast<TokenId>(id));
}

}  // namespace

Result<SentencePieceModel> SentencePieceModel::parse(std::string_view bytes) {
  SentencePieceModel model;
  bool has_trainer = false;
  ProtoReader reader(bytes, 0);
  while (!reader.done()) {
    const ProtoField field = TRY(reader.next());
    const size_t offset = reader.offset() - field.bytes.size();
    if (!field.is_bytes) continue;
    if (field.number == 1) TRY(read_piece(field.bytes, offset, model));
    if (field.number == 2) TRY(read_trainer(field.bytes, offset, model));
    if (field.number == 3) TRY(read_normalizer(field.bytes, offset, model));
    has_trainer |= field.number == 2;
  }
  if (model.pieces.empty() || !has_trainer) {
    return fail(ErrorCode::kCorruptFile, std::string(kField), "{} of {} bytes holds {} pieces and {} trainer",
                kField, bytes.size(), model.pieces.size(), has_trainer ? "a" : "no");
  }
  return model;
}

TokenizerFields SentencePieceModel::fields() const {
  TokenizerFields fields;
  fields.model = "llama";
  fields.tokens = pieces;
  fields.scores = scores;
  fields.token_types = types;
  fields.bos = some_id(bos);
  fields.eos = some_id(eos);
  fields.unknown = some_id(unknown);
  fields.padding = some_id(padding);
  fields.add_space_prefix = add_dummy_prefix;
  return fields;
}

}  // namespace quire
