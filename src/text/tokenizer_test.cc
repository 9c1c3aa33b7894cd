#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <quire_text.h>

#include <limits>
#include <random>

#include "text/sentencepiece_model.h"
#include "text/small_vocabulary.h"
#include "text/text_library.h"

namespace quire::test {
namespace {

std::vector<TokenId> ids_of(const Tokenizer& tokenizer, std::string_view text,
                            SpecialTokens specials = SpecialTokens::kParse) {
  const auto ids = tokenizer.encode(text, specials);
  EXPECT_TRUE(ids.has_value()) << (ids ? "" : ids.error().message);
  return ids.value_or(std::vector<TokenId>{});
}

void expect_refused(const SmallVocabulary& vocabulary, ErrorCode code, std::string_view field,
                    std::string_view part) {
  const auto built = vocabulary.build();
  ASSERT_FALSE(built.has_value()) << part;
  EXPECT_EQ(built.error().code, code) << built.error().message;
  EXPECT_EQ(built.error().field, field);
  EXPECT_NE(built.error().message.find(part), std::string::npos) << built.error().message;
}

TEST(SentenceTokenizer, MergesByScoreAndFallsBackToBytes) {
  const auto built = sentence_vocabulary({"▁he", "llo", "▁", "h", "e", "l", "o", "▁h", "ll"}).build();
  ASSERT_TRUE(built.has_value()) << built.error().message;
  const Tokenizer& t = **built;
  const TokenId first = 259;
  // "▁h" + "e" has the best score; "ll" + "o" comes next although "ll" itself is worst.
  EXPECT_EQ(ids_of(t, "hello"), (std::vector<TokenId>{first, first + 1}));
  EXPECT_EQ(ids_of(t, "é"), (std::vector<TokenId>{first + 2, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(ids_of(t, "</s>he"), (std::vector<TokenId>{2, first}));
  EXPECT_EQ(t.token_bytes(first), " he");
  EXPECT_EQ(t.token_piece(first), "▁he");
  EXPECT_EQ(t.token_bytes(3 + 10), "\n");
  EXPECT_EQ(t.token_kind(3 + 10), TokenKind::kByte);
  EXPECT_EQ(t.token_bytes(2), "");
  EXPECT_TRUE(t.strips_leading_blank());
  EXPECT_EQ(t.kind_name(), "llama/default");
  EXPECT_EQ(std::vector<TokenId>(t.end_tokens().begin(), t.end_tokens().end()), (std::vector<TokenId>{2}));
}

TEST(SentenceTokenizer, BosIsAddedOnceAndOnlyWhereTheFileSaysSo) {
  SmallVocabulary vocabulary = sentence_vocabulary({"▁", "a"});
  auto t = vocabulary.build();
  ASSERT_TRUE(t.has_value());
  const std::vector<TokenId> expected = {1, 259, 260};
  EXPECT_EQ((*t)->encode_prompt("a", SpecialTokens::kParse), expected);
  EXPECT_EQ((*t)->encode_prompt("<s>a", SpecialTokens::kParse), expected);
  EXPECT_EQ((*t)->encode_prompt("", SpecialTokens::kParse), std::vector<TokenId>{1});
  vocabulary.extra.add_bos = false;
  vocabulary.extra.add_eos = true;
  t = vocabulary.build();
  ASSERT_TRUE(t.has_value());
  EXPECT_EQ((*t)->encode_prompt("a", SpecialTokens::kParse), (std::vector<TokenId>{259, 260, 2}));
  EXPECT_EQ((*t)->encode_prompt("a</s>", SpecialTokens::kParse), (std::vector<TokenId>{259, 260, 2}));
}

TEST(SentenceTokenizer, TextWithoutTokensForItIsUnknownOnce) {
  SmallVocabulary vocabulary;
  vocabulary.add("<unk>", 2);
  vocabulary.add("a", 1);
  vocabulary.extra.add_space_prefix = false;
  const auto t = vocabulary.build();
  ASSERT_TRUE(t.has_value()) << t.error().message;
  EXPECT_EQ(ids_of(**t, "aééab"), (std::vector<TokenId>{1, 0, 1, 0}));
  EXPECT_EQ((*t)->token_kind(0), TokenKind::kUnknown);
}

TEST(ByteLevelTokenizer, ControlTokensAreTextWhenAskedTo) {
  SmallVocabulary vocabulary = letter_vocabulary({"<|im_end|>", "<x>"});
  vocabulary.add("<y>", 4);
  vocabulary.merges = {"a b"};
  vocabulary.add("ab", 1);
  vocabulary.scores.clear();
  const auto t = vocabulary.build();
  ASSERT_TRUE(t.has_value()) << t.error().message;
  const TokenId end = 95;
  EXPECT_EQ(ids_of(**t, "ab<|im_end|><y>"), (std::vector<TokenId>{end + 3, end, end + 2}));
  EXPECT_EQ(ids_of(**t, "<x><y>", SpecialTokens::kAsText),
            (std::vector<TokenId>{'<' - '!', 'x' - '!', '>' - '!', end + 2}));
  EXPECT_EQ(ids_of(**t, "a b"), (std::vector<TokenId>{'a' - '!', 94, 'b' - '!'}));
  EXPECT_EQ(std::vector<TokenId>((*t)->end_tokens().begin(), (*t)->end_tokens().end()),
            std::vector<TokenId>{end});
  EXPECT_EQ((*t)->token_bytes(94), " ");
  EXPECT_EQ((*t)->token_bytes(end + 2), "<y>");
  // Bytes without a token are dropped, as the reference implementation does.
  EXPECT_EQ(ids_of(**t, "a\x01"), (std::vector<TokenId>{'a' - '!'}));
}

TEST(WordTokenizer, WordPieceWithThePrefixMapping) {
  SmallVocabulary vocabulary;
  vocabulary.model = "bert";
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hel", "lo", "▁,"}) vocabulary.add(token, 1);
  vocabulary.scores.clear();
  const auto t = vocabulary.build();
  ASSERT_TRUE(t.has_value()) << t.error().message;
  EXPECT_EQ((*t)->encode_prompt("Hello, HÉLLO xyz", SpecialTokens::kParse),
            (std::vector<TokenId>{2, 4, 5, 6, 4, 5, 1, 3}));
  EXPECT_EQ((*t)->decode(std::vector<TokenId>{2, 4, 5, 6, 3}), "hello ,");
}

TEST(HostileVocabulary, FaultsAreNamed) {
  const auto corrupt = ErrorCode::kCorruptFile;
  const char* tokens = "tokenizer.ggml.tokens";
  SmallVocabulary v = letter_vocabulary({});
  v.pre = "no-such-rule";
  expect_refused(v, ErrorCode::kUnsupported, "tokenizer.ggml.pre", "no-such-rule");
  expect_refused(v, ErrorCode::kUnsupported, "tokenizer.ggml.pre", "qwen2");
  v = letter_vocabulary({});
  v.model = "rwkv\n\x1b[31m";
  expect_refused(v, ErrorCode::kUnsupported, "tokenizer.ggml.model", "gpt2, llama and bert");
  v = letter_vocabulary({"A"});
  expect_refused(v, corrupt, tokens, "is also");
  v = letter_vocabulary({"\xFF\xFE"});
  expect_refused(v, corrupt, tokens, "UTF-8");
  v = letter_vocabulary({});
  v.merges = {"a b"};
  expect_refused(v, corrupt, "tokenizer.ggml.merges", "no token");
  v.merges = {"ab"};
  expect_refused(v, corrupt, "tokenizer.ggml.merges", "no blank");
  v.merges = {std::string("a\0b", 3)};
  expect_refused(v, corrupt, "tokenizer.ggml.merges", "no blank");
  v = letter_vocabulary({});
  v.types.pop_back();
  expect_refused(v, corrupt, "tokenizer.ggml.token_type", "94");
  v = letter_vocabulary({});
  v.extra.eos = 95;
  expect_refused(v, corrupt, "tokenizer.ggml.eos_token_id", "95");
  v.extra.eos = std::numeric_limits<TokenId>::min();
  expect_refused(v, corrupt, "tokenizer.ggml.eos_token_id", "-2147483648");
  v = letter_vocabulary({std::string(1 << 17, 'x')});
  expect_refused(v, corrupt, tokens, "131072");
  v = SmallVocabulary{};
  expect_refused(v, corrupt, tokens, "0 entries");
  v.add("a", 1);
  v.scores.clear();
  expect_refused(v, corrupt, "tokenizer.ggml.scores", "missing");
  v = sentence_vocabulary({});
  v.add("no byte", 6);
  expect_refused(v, corrupt, tokens, "<0xNN>");
}

TEST(HostileVocabulary, StrangeButConsistentTablesWork) {
  SmallVocabulary v = letter_vocabulary({std::string("\0", 1), "", "", "<|end|>"});
  v.types.assign(v.types.size(), 77);
  auto t = v.build();
  ASSERT_TRUE(t.has_value()) << t.error().message;
  EXPECT_EQ(ids_of(**t, "ab"), (std::vector<TokenId>{'a' - '!', 'b' - '!'}));
  v = sentence_vocabulary({"▁", "a", std::string(1, '\0')});
  for (float& score : v.scores) score = std::numeric_limits<float>::quiet_NaN();
  t = v.build();
  ASSERT_TRUE(t.has_value()) << t.error().message;
  EXPECT_EQ(ids_of(**t, "a"), (std::vector<TokenId>{259, 260}));
}

TEST(HostileVocabulary, RandomTablesNeverCrash) {
  std::mt19937 random(3);
  const char* models[] = {"gpt2", "llama", "bert"};
  int built = 0;
  for (int round = 0; round < 3000; ++round) {
    SmallVocabulary v;
    v.model = models[round % 3];
    v.pre = round % 3 == 0 ? "llama-bpe" : "";
    for (size_t count = random() % 12; count > 0; --count) {
      std::string token;
      for (size_t length = random() % 4; length > 0; --length) token += "ab ▁\xC3\xA9<>[]"[random() % 12];
      v.add(token, static_cast<int32_t>(random() % 8), static_cast<float>(random() % 5));
    }
    for (size_t count = random() % 3; count > 0; --count) v.merges.emplace_back("a b");
    v.extra.eos = static_cast<TokenId>(random() % 12) - 1;
    if (const auto t = v.build()) {
      ++built;
      for (const char* text : {"", "a", "ab ba", "é▁<>", "\n\n  x"}) {
        const auto ids = (*t)->encode(text, SpecialTokens::kParse);
        if (!ids) continue;
        for (const TokenId id : *ids) ASSERT_LT(id, (*t)->vocab_size());
        (void)(*t)->decode(*ids);
      }
    }
  }
  EXPECT_GT(built, 0);
}

TEST(TokenizerText, MustBeUtf8) {
  const auto t = letter_vocabulary({}).build();
  ASSERT_TRUE(t.has_value());
  const auto ids = (*t)->encode("ab\xFF", SpecialTokens::kParse);
  ASSERT_FALSE(ids.has_value());
  EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(ids.error().message.find("byte 2"), std::string::npos) << ids.error().message;
}

constexpr std::string_view kJson = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [
    {"id": 7, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
    {"id": 9, "content": "<u>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}}},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
    "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "<": 5, ">": 6, "s": 8}, "merges": ["a b", "Ġ ab"]}})";

TEST(JsonTokenizer, KeepsDeclaredIdsAndBothWaysToTreatSpecials) {
  const auto built =
      Tokenizer::from_json(kJson, R"({"eos_token": {"content": "<u>"}, "add_eos_token": true})");
  ASSERT_TRUE(built.has_value()) << built.error().message;
  const Tokenizer& t = **built;
  EXPECT_EQ(t.vocab_size(), 10);
  EXPECT_EQ(ids_of(t, "ab ab<s><u>"), (std::vector<TokenId>{3, 4, 7, 9}));
  EXPECT_EQ(ids_of(t, "<s><u>", SpecialTokens::kAsText), (std::vector<TokenId>{5, 8, 6, 9}));
  EXPECT_EQ(t.encode_prompt("ab", SpecialTokens::kParse), (std::vector<TokenId>{7, 3, 9}));
  EXPECT_EQ(t.token_bytes(4), " ab");
  EXPECT_EQ(t.token_kind(7), TokenKind::kControl);
  EXPECT_EQ(t.token_kind(9), TokenKind::kUserDefined);
  EXPECT_EQ(t.bos(), 7);
  EXPECT_EQ(t.eos(), 9);
  EXPECT_EQ(t.kind_name(), "json");
}

TEST(JsonTokenizer, AnyCutOrDamageIsAnErrorOrWorks) {
  for (size_t length = 0; length < kJson.size(); length += 7) {
    EXPECT_FALSE(Tokenizer::from_json(kJson.substr(0, length)).has_value());
  }
  std::mt19937 random(4);
  for (int round = 0; round < 1500; ++round) {
    std::string damaged(kJson);
    for (int change = 0; change < 3; ++change)
      damaged[random() % damaged.size()] = "0913{}[]\",:aZ "[random() % 14];
    if (const auto t = Tokenizer::from_json(damaged)) (void)(*t)->encode("ab <s> é", SpecialTokens::kParse);
  }
  std::string far_id(kJson);
  far_id.replace(far_id.find("\"id\": 9"), 7, "\"id\": 4294967295");
  const auto t = Tokenizer::from_json(far_id);
  ASSERT_FALSE(t.has_value());
  EXPECT_NE(t.error().message.find("4294967295"), std::string::npos) << t.error().message;
}

TEST(SentencePieceFile, DamageIsAnErrorWithItsOffset) {
  const std::string model("\x0A\x08\x0A\x01\x61\x15\0\0\0\0\x12\x02\x18\x02\x1A\x02\x20\x00", 18);
  const auto parsed = SentencePieceModel::parse(model);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->pieces, std::vector<std::string_view>{"a"});
  for (size_t length = 0; length < model.size() - 4; ++length) {
    const auto cut = Tokenizer::from_sentencepiece(std::string_view(model).substr(0, length));
    EXPECT_FALSE(cut.has_value()) << length;
  }
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = model;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    (void)Tokenizer::from_sentencepiece(damaged);
  }
}

TEST(TextLibrary, APanicIsAnErrorValue) {
  quire_text_error error{};
  ASSERT_EQ(quire_text_panic_for_test(&error), -1);
  const Error fault = take_error(error).error();
  EXPECT_EQ(fault.code, ErrorCode::kInternal);
  EXPECT_NE(fault.message.find("index out of bounds"), std::string::npos) << fault.message;
}

}  // namespace
}  // namespace quire::test
