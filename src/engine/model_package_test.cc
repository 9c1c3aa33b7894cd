#include "engine/model_package.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/tiny_model.h"
#include "files/gguf_writer.h"
#include "kv/kv_store.h"
#include "model/model.h"
#include "tests/data_paths.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// A model cache of its own, with empty files: names are all that resolve_model() looks at.
class ModelCache : public testing::Test {
 protected:
  void SetUp() override {
    const char* before = std::getenv("QUIRE_MODELS");
    if (before != nullptr) before_ = before;
    folder_ = fs::path(testing::TempDir()) / "quire_model_cache";
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "all-minilm-l6-v2");
    touch("all-minilm-l6-v2/tokenizer.json");
    for (const char* name :
         {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf",
          "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
          "big-00001-of-00002.gguf", "big-00002-of-00002.gguf", "notes.txt", ".lock", "half.gguf.partial"}) {
      touch(name);
    }
    setenv("QUIRE_MODELS", folder_.c_str(), 1);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    if (before_.empty()) {
      unsetenv("QUIRE_MODELS");
    } else {
      setenv("QUIRE_MODELS", before_.c_str(), 1);
    }
  }
  void touch(const std::string& name) { std::ofstream(folder_ / name) << "x"; }
  std::string found(const std::string& model) {
    auto path = resolve_model(model);
    EXPECT_TRUE(path) << (path ? "" : path.error().message);
    return path ? fs::path(*path).filename().string() : "";
  }

  std::string before_;
  fs::path folder_;
};

TEST_F(ModelCache, NamesStandForTheFilesThatBeginSo) {
  EXPECT_EQ(found("smollm2-135m"), "SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_EQ(found("gemma-3-270m"), "gemma-3-270m-q4_k_m.gguf");
  EXPECT_EQ(found("qwen2.5-coder-0.5b"), "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
  EXPECT_EQ(found("Qwen2.5-Coder-1.5B"), "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf");
  EXPECT_EQ(found("all-minilm-l6-v2"), "all-minilm-l6-v2");
  EXPECT_EQ(found("270m"), "gemma-3-270m-q4_k_m.gguf");
  EXPECT_EQ(found("gemma-3-270m-q4_k_m.gguf"), "gemma-3-270m-q4_k_m.gguf");
  EXPECT_EQ(found("big"), "big-00001-of-00002.gguf");
  EXPECT_EQ(*resolve_model((folder_ / "notes.txt").string()), (folder_ / "notes.txt").string());
}

TEST_F(ModelCache, AnExactNameWinsOverLongerOnes) {
  touch("gemma-3.gguf");
  EXPECT_EQ(found("gemma-3"), "gemma-3.gguf");
}

TEST_F(ModelCache, AmbiguityListsTheCandidates) {
  auto path = resolve_model("qwen2.5");
  ASSERT_FALSE(path);
  EXPECT_EQ(path.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(path.error().message.find("qwen2.5-coder-0.5b-instruct-q4_k_m"), std::string::npos);
  EXPECT_NE(path.error().message.find("qwen2.5-coder-1.5b-instruct-q4_k_m"), std::string::npos);
  EXPECT_EQ(path.error().message.find("gemma"), std::string::npos);
}

TEST_F(ModelCache, AnUnknownNameListsWhatThereIs) {
  auto path = resolve_model("no-such-model");
  ASSERT_FALSE(path);
  EXPECT_EQ(path.error().code, ErrorCode::kNotFound);
  EXPECT_NE(path.error().message.find("gemma-3-270m-q4_k_m"), std::string::npos) << path.error().message;
  EXPECT_EQ(path.error().message.find("notes"), std::string::npos) << path.error().message;
  EXPECT_EQ(path.error().message.find("00002-of"), std::string::npos) << path.error().message;
  EXPECT_EQ(resolve_model("no/such/file.gguf").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(resolve_model("").error().code, ErrorCode::kInvalidArgument);
  fs::remove_all(folder_);
  EXPECT_EQ(resolve_model("smollm2-135m").error().code, ErrorCode::kNotFound);
}

// --- Tokenizer and template of a GGUF file
// ------------------------------------------------------------------

Result<std::unique_ptr<Tokenizer>> tokenizer_from(GgufWriter writer) {
  const auto bytes = writer.bytes();
  return tokenizer_of(GgufFile::parse(bytes, "tiny.gguf").value());
}

TEST(TokenizerOf, MapsTheFieldsOfTheFile) {
  GgufWriter writer = tiny_metadata(TinyKind::kFull);
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.push_back(byte_piece(b));
  for (const char* more : {"<|endoftext|>", "<|begin|>", "hi", "<|three|>"}) tokens.emplace_back(more);
  writer.set("tokenizer.ggml.tokens", tokens);
  std::vector<int32_t> types(kTinyVocab, 1);
  types[256] = types[257] = types[259] = 3;
  writer.set("tokenizer.ggml.token_type", types);
  writer.set("tokenizer.ggml.merges", std::vector<std::string>{"h i"});
  writer.set("tokenizer.ggml.bos_token_id", uint32_t{257});
  writer.set("tokenizer.ggml.add_bos_token", true);
  writer.set("tokenizer.ggml.padding_token_id", UINT32_MAX);  // none
  auto tokenizer = tokenizer_from(writer);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->vocab_size(), kTinyVocab);
  EXPECT_EQ((*tokenizer)->eos(), std::optional<TokenId>(kTinyEnd));
  EXPECT_EQ((*tokenizer)->bos(), std::optional<TokenId>(257));
  EXPECT_EQ((*tokenizer)->kind_name(), "gpt2/gpt-2");
  EXPECT_EQ((*tokenizer)->encode("hit", SpecialTokens::kAsText).value(), (std::vector<TokenId>{258, 't'}));
  EXPECT_EQ((*tokenizer)->encode_prompt("hi", SpecialTokens::kAsText).value(),
            (std::vector<TokenId>{257, 258}));
}

TEST(TokenizerOf, NamesTheKeyThatIsWrong) {
  const auto field_of = [](GgufWriter writer) {
    auto tokenizer = tokenizer_from(std::move(writer));
    return tokenizer ? std::string("accepted") : tokenizer.error().field;
  };
  const GgufWriter good = tiny_metadata(TinyKind::kFull);
  const auto with = [&](const std::string& key, auto value) {
    GgufWriter writer = good;
    writer.set("tokenizer.ggml." + key, value);
    return field_of(writer);
  };
  EXPECT_EQ(with("eos_token_id", uint32_t{kTinyVocab}), "tokenizer.ggml.eos_token_id");
  EXPECT_EQ(with("bos_token_id", "first"), "tokenizer.ggml.bos_token_id");
  EXPECT_EQ(with("tokens", std::vector<int32_t>{1}), "tokenizer.ggml.tokens");
  EXPECT_EQ(with("tokens", std::vector<std::string>{}), "tokenizer.ggml.tokens");
  EXPECT_EQ(with("merges", std::vector<float>{1}), "tokenizer.ggml.merges");
  EXPECT_EQ(with("scores", std::vector<std::string>{"1"}), "tokenizer.ggml.scores");
  EXPECT_EQ(with("token_type", std::vector<float>{1}), "tokenizer.ggml.token_type");
  EXPECT_EQ(with("add_bos_token", uint8_t{1}), "tokenizer.ggml.add_bos_token");
  EXPECT_EQ(with("model", uint8_t{1}), "tokenizer.ggml.model");
  GgufWriter none = good;
  none.remove("tokenizer.ggml.model");
  EXPECT_EQ(field_of(none), "tokenizer.ggml.model");
}

TEST(ChatTemplateOf, IsAbsentOrCompiled) {
  GgufWriter writer = tiny_metadata(TinyKind::kFull);
  auto bytes = writer.bytes();
  EXPECT_EQ(chat_template_of(GgufFile::parse(bytes, "tiny").value()).value(), nullptr);
  writer.add("tokenizer.chat_template", "{{ messages[0]['content'] }}!");
  bytes = writer.bytes();
  const auto chat_template = chat_template_of(GgufFile::parse(bytes, "tiny").value()).value();
  ASSERT_NE(chat_template, nullptr);
  EXPECT_EQ(chat_template->render(R"({"messages": [{"content": "hello"}]})").value(), "hello!");
}

TEST(OpenTokenizer, ReadsVocabularyFilesJsonAndFolders) {
  const fs::path data = test::shared_folder() / "data";
  SKIP_WITHOUT(data);
  for (const auto& [name, size] : std::vector<std::pair<const char*, int>>{
           {"tokenizers/llama.cpp-vocabs/ggml-vocab-gpt-2.gguf", 50257},
           {"tokenizers/llama.cpp-vocabs/ggml-vocab-llama-spm.gguf", 32000},
           {"tokenizers/llama.cpp-vocabs/ggml-vocab-bert-bge.gguf", 30522},
           {"arch/tokenizer", 512},
           {"arch/tokenizer/tokenizer.json", 512}}) {
    auto tokenizer = open_tokenizer((data / name).string());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ((*tokenizer)->vocab_size(), size) << name;
  }
  EXPECT_FALSE(open_tokenizer((data / "README.md").string()));
  EXPECT_EQ(open_tokenizer((data / "absent.json").string()).error().code, ErrorCode::kNotFound);
}

// --- Description
// ----------------------------------------------------------------------------------------------

TEST(DescribePackage, CountsWhatTheModelHolds) {
  const std::string& path = tiny_model_path(TinyKind::kFull);
  auto info = describe_package(path, "f32");
  ASSERT_TRUE(info) << info.error().message;
  const GgufFile file = GgufFile::open(path).value();
  EXPECT_EQ(info->file_bytes, fs::file_size(path));
  EXPECT_EQ(info->architecture, "llama");
  EXPECT_EQ(info->name, "tiny");
  EXPECT_EQ(info->layers, 2);
  EXPECT_EQ(info->width, 64);
  EXPECT_EQ(info->vocab_size, kTinyVocab);
  EXPECT_EQ(info->context_length, kTinyContext);
  EXPECT_EQ(info->tokenizer, "gpt2/gpt-2");
  EXPECT_FALSE(info->chat_template.has_value());
  ASSERT_EQ(info->tensor_types.size(), 1u);
  EXPECT_EQ(info->tensor_types[0].type, "F32");
  EXPECT_EQ(info->tensor_types[0].tensors, static_cast<int>(file.tensors().size()));
  EXPECT_EQ(info->tensor_types[0].bytes, info->parameters * 4);
  // Two layers, two KV heads of 16, K and V, four bytes each; blocks shorter than a tile of keys are padded.
  EXPECT_GE(info->kv_bytes_per_token, 2u * 2 * (16 + 16) * 4);
  if (kDefaultBlockTokens >= kKeyTile) {
    EXPECT_EQ(info->kv_bytes_per_token, 2u * 2 * (16 + 16) * 4);
  }
  EXPECT_GE(info->kv_bytes_full_context, info->kv_bytes_per_token * kTinyContext);
  EXPECT_GE(info->packed_weight_bytes, info->parameters * 4);
  EXPECT_EQ(describe_package(path, "f17").error().field, "kv_type");
}

TEST(DescribePackage, KnowsVocabulariesOfModelsThatItCannotRun) {
  const fs::path path = test::shared_folder() / "data/tokenizers/llama.cpp-vocabs/ggml-vocab-bert-bge.gguf";
  SKIP_WITHOUT(path);
  auto info = describe_package(path.string(), "f16");
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->architecture, "bert");
  EXPECT_EQ(info->vocab_size, 30522);
  EXPECT_EQ(info->tokenizer, "bert");
  EXPECT_EQ(info->parameters, 0u);
}

TEST(DescribePackage, RefusesWhatIsNoModel) {
  EXPECT_EQ(describe_package(testing::TempDir(), "f16").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(describe_package("/no/such/file", "f16").error().code, ErrorCode::kNotFound);
  const std::string path = testing::TempDir() + "/quire_broken.gguf";
  std::ofstream(path) << "GGUF but no more";
  EXPECT_EQ(describe_package(path, "f16").error().code, ErrorCode::kUnsupported);
  fs::remove(path);
}

}  // namespace
}  // namespace quire
