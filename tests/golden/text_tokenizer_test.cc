// Token ids against recorded ones: conformance pairs, prompts of the model goldens, SentencePiece samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <iostream>

#include "engine/model_package.h"
#include "tests/golden/model_golden_data.h"
#include "tests/golden/text_golden_data.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace quire::test {
namespace {

std::unique_ptr<Tokenizer> require(Result<std::unique_ptr<Tokenizer>> tokenizer) {
  EXPECT_TRUE(tokenizer.has_value()) << (tokenizer ? "" : tokenizer.error().message);
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

// Encodes all texts of the pair; prints and returns how many are equal.
void expect_all_equal(const Tokenizer& tokenizer, const std::string& family) {
  const ConformancePair pair =
      read_pair(shared_path("tokenizers/llama.cpp-vocabs/ggml-vocab-" + family + ".gguf"));
  ASSERT_EQ(pair.texts.size(), pair.ids.size());
  ASSERT_GT(pair.texts.size(), 0u);
  size_t equal = 0;
  for (size_t i = 0; i < pair.texts.size(); ++i) {
    const auto ids = tokenizer.encode(pair.texts[i], SpecialTokens::kAsText);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    if (*ids == pair.ids[i]) ++equal;
    EXPECT_EQ(*ids, pair.ids[i]) << family << " text " << i << ": " << pair.texts[i];
  }
  std::cout << "[  PAIRS   ] " << family << " " << equal << "/" << pair.texts.size() << " ("
            << tokenizer.kind_name() << ")\n";
}

struct Family {
  std::string name;        // of the pair
  std::string vocabulary;  // path under the shared data, or "model:" and a file of the model cache
};

class Conformance : public testing::TestWithParam<Family> {};

TEST_P(Conformance, IdsAreEqual) {
  const Family& family = GetParam();
  const bool cached = family.vocabulary.starts_with("model:");
  const std::string path = cached ? model_path(family.vocabulary.substr(6)) : shared_path(family.vocabulary);
  SKIP_WITHOUT(path);
  const auto tokenizer = require(open_tokenizer(path));
  ASSERT_NE(tokenizer, nullptr);
  expect_all_equal(*tokenizer, family.name);
}

constexpr auto kVocabularies = "tokenizers/llama.cpp-vocabs/ggml-vocab-";
constexpr auto kQwen = "model:qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";

INSTANTIATE_TEST_SUITE_P(Text, Conformance,
                         testing::Values(Family{"gpt-2", std::string(kVocabularies) + "gpt-2.gguf"},
                                         Family{"llama-spm", std::string(kVocabularies) + "llama-spm.gguf"},
                                         Family{"deepseek-llm",
                                                std::string(kVocabularies) + "deepseek-llm.gguf"},
                                         Family{"bert-bge", std::string(kVocabularies) + "bert-bge.gguf"},
                                         Family{"qwen2", kQwen}, Family{"deepseek-r1-qwen", kQwen}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(ConformanceFiles, LlamaBpe) {
  const std::string encoder = shared_path("tokenizers/llama3-bpe/encoder.json");
  SKIP_WITHOUT(encoder);
  const auto tokenizer =
      require(read_bpe_files(encoder, shared_path("tokenizers/llama3-bpe/vocab.bpe"), "llama-bpe"));
  ASSERT_NE(tokenizer, nullptr);
  expect_all_equal(*tokenizer, "llama-bpe");
}

TEST(ConformanceFiles, Llama2SentencePiece) {
  const std::string path = shared_path("tokenizers/llama2-spm/tokenizer.model");
  SKIP_WITHOUT(path);
  const auto tokenizer = require(Tokenizer::from_sentencepiece(read_bytes(path)));
  ASSERT_NE(tokenizer, nullptr);
  expect_all_equal(*tokenizer, "llama-spm");
}

// The goldens' texts show control tokens, which decode() leaves out.
std::string with_control_pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, {});
  std::string text;
  for (const TokenId id : ids) {
    text += detokenizer.push(id);
    if (tokenizer.token_kind(id) == TokenKind::kControl) text += tokenizer.token_piece(id);
  }
  return text + detokenizer.finish();
}

class PromptIds : public testing::TestWithParam<GoldenModel> {};

TEST_P(PromptIds, AreThoseOfTheGoldens) {
  const std::string path = model_path(GetParam().file);
  SKIP_WITHOUT(path);
  const auto tokenizer = require(open_tokenizer(path));
  ASSERT_NE(tokenizer, nullptr);
  const std::string lines = read_gzip(shared_path("goldens/" + GetParam().folder + "/prompts.jsonl.gz"));
  std::istringstream stream(lines);
  int prompts = 0;
  int equal = 0;
  for (std::string line; std::getline(stream, line);) {
    const boost::json::value prompt = boost::json::parse(line);
    const std::string text(prompt.at("text").as_string());
    const auto ids = tokenizer->encode_prompt(text, SpecialTokens::kParse);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    const std::vector<TokenId> expected = token_ids(prompt.at("ids"));
    EXPECT_EQ(*ids, expected) << prompt.at("id");
    equal += *ids == expected;
    ++prompts;
    const std::string written = with_control_pieces(*tokenizer, token_ids(prompt.at("greedy").at("ids")));
    EXPECT_EQ(written, std::string_view(prompt.at("greedy").at("text").as_string())) << prompt.at("id");
  }
  EXPECT_GT(prompts, 0);
  std::cout << "[  PROMPTS ] " << GetParam().folder << " " << equal << "/" << prompts << "\n";
}

INSTANTIATE_TEST_SUITE_P(Text, PromptIds, testing::ValuesIn(golden_models()),
                         [](const auto& info) { return golden_name(info.param); });

TEST(PromptIdsJson, MiniLm) {
  const std::string path = model_path("all-minilm-l6-v2");
  SKIP_WITHOUT(path);
  const auto tokenizer = require(open_tokenizer(path));
  ASSERT_NE(tokenizer, nullptr);
  std::istringstream stream(read_gzip(shared_path("goldens/all-minilm-l6-v2/embeddings.jsonl.gz")));
  int equal = 0;
  int texts = 0;
  for (std::string line; std::getline(stream, line); ++texts) {
    const boost::json::value row = boost::json::parse(line);
    const auto ids = tokenizer->encode_prompt(std::string(row.at("text").as_string()), SpecialTokens::kParse);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    EXPECT_EQ(*ids, token_ids(row.at("ids"))) << row.at("text");
    equal += *ids == token_ids(row.at("ids"));
  }
  EXPECT_GT(texts, 0);
  std::cout << "[  PROMPTS ] all-minilm-l6-v2 " << equal << "/" << texts << " (tokenizer.json)\n";
}

// The recorded debug text writes blanks as U+2581, each part with the blank that SentencePiece puts in front,
// and bytes as <0xNN>. Turns it back into the text that was encoded.
std::string sample_text(std::string debug, const Tokenizer& tokenizer) {
  const auto replace_all = [](std::string& text, std::string_view from, std::string_view to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  };
  replace_all(debug, "<0x0A>", "\n");
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.token_kind(id) != TokenKind::kControl) continue;
    const std::string piece(tokenizer.token_piece(id));
    replace_all(debug, piece + "\u2581", piece);
    replace_all(debug, piece + " ", piece);  // one sample is written with plain blanks
  }
  replace_all(debug, "\u2581", " ");
  return debug;
}

TEST(MistralSamples, TextsBecomeTheRecordedIds) {
  const std::string folder = shared_path("tokenizers/mistral/");
  SKIP_WITHOUT(folder);
  const std::pair<std::string, std::string> versions[] = {
      {"v1", "tokenizer.model.v1"},
      {"v2", "mistral_instruct_tokenizer_240216.model.v2"},
      {"v3", "mistral_instruct_tokenizer_240323.model.v3"}};
  int samples = 0;
  int equal = 0;
  for (const auto& [version, file] : versions) {
    const auto tokenizer = require(Tokenizer::from_sentencepiece(read_bytes(folder + file)));
    ASSERT_NE(tokenizer, nullptr);
    for (const char* name : {"get_weather_full", "get_weather_no_history", "get_weather_no_system_prompt",
                             "no_tools", "parallel_calls", "several_calls"}) {
      const std::string stem = folder + "samples/" + name;
      if (!file_exists(stem + "/tokens_" + version + ".json")) continue;
      const std::string text = sample_text(read_bytes(stem + "/text_" + version + ".txt"), *tokenizer);
      const auto ids = tokenizer->encode(text, SpecialTokens::kParse);
      ASSERT_TRUE(ids.has_value()) << ids.error().message;
      const std::vector<TokenId> expected =
          token_ids(read_json(stem + "/tokens_" + version + ".json").at("tokens"));
      EXPECT_EQ(*ids, expected) << name << " " << version;
      equal += *ids == expected;
      ++samples;
    }
  }
  EXPECT_GT(samples, 0);
  std::cout << "[  SAMPLES ] mistral " << equal << "/" << samples << "\n";
}

TEST(RoundTrip, WikiTextComesBackByteForByte) {
  const std::string path = shared_path("text/wikitext-2/wiki.test.raw");
  SKIP_WITHOUT(path);
  const std::string text = read_bytes(path);
  for (const GoldenModel& model : golden_models()) {
    if (!file_exists(model_path(model.file))) continue;
    const auto start = std::chrono::steady_clock::now();
    const auto tokenizer = require(open_tokenizer(model_path(model.file)));
    const auto built = std::chrono::steady_clock::now();
    ASSERT_NE(tokenizer, nullptr);
    const auto ids = tokenizer->encode(text, SpecialTokens::kParse);
    const auto encoded = std::chrono::steady_clock::now();
    ASSERT_TRUE(ids.has_value());
    EXPECT_TRUE(tokenizer->decode(*ids) == text) << model.folder;
    const auto ms = [](auto from, auto to) {
      return std::chrono::duration<double, std::milli>(to - from).count();
    };
    std::cout << "[   SPEED  ] " << model.folder << ": open " << ms(start, built) << " ms, " << ids->size()
              << " tokens, encode " << double(text.size()) / 1e3 / ms(built, encoded) << " MB/s\n";
  }
}

}  // namespace
}  // namespace quire::test
