#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "files/gguf_writer.h"
#include "model/model.h"
#include "model/weight_names.h"
#include "tests/data_paths.h"

namespace quire {
namespace {

// A writer of a model with `architecture`'s usual keys: 2 layers, width 64, 4 heads of 16, 2 KV heads.
class TinyModel {
 public:
  explicit TinyModel(std::string architecture) : prefix_(architecture + ".") {
    writer.add("general.architecture", architecture);
    set("block_count", uint32_t{2});
    set("context_length", uint32_t{512});
    set("embedding_length", uint32_t{64});
    set("feed_forward_length", uint32_t{96});
    set("attention.head_count", uint32_t{4});
    set("attention.head_count_kv", uint32_t{2});
    set("attention.layer_norm_rms_epsilon", 1e-5f);
    set("rope.freq_base", 10000.0f);
    writer.add("tokenizer.ggml.tokens", std::vector<std::string>(100, "x"));
    if (architecture == "gemma3") {
      set("attention.sliding_window", uint32_t{32});
      set("attention.key_length", uint32_t{16});
      set("attention.value_length", uint32_t{16});
    }
  }

  template <class T>
  TinyModel& set(const std::string& key, const T& value) {
    writer.set(prefix_ + key, value);
    return *this;
  }
  TinyModel& remove(const std::string& key) {
    writer.remove(prefix_ + key);
    return *this;
  }

  // Adds every weight that the spec wants, in zeros.
  TinyModel& add_weights() {
    const ModelSpec spec = read().value();
    for (const WeightName& weight : all_weight_names(spec)) add_weight(weight);
    return *this;
  }
  void add_weight(const WeightName& weight) {
    size_t count = 1;
    for (int64_t size : weight.shape) count *= static_cast<size_t>(size);
    writer.add_tensor_f32(weight.name, weight.shape, std::vector<float>(count));
  }

  Result<ModelSpec> read() {
    bytes_ = writer.bytes();
    return read_model_spec(GgufFile::parse(bytes_, "tiny.gguf").value());
  }
  Error error() {
    auto spec = read();
    EXPECT_FALSE(spec);
    return spec ? Error{} : spec.error();
  }

  GgufWriter writer;

 private:
  std::string prefix_;
  std::vector<std::byte> bytes_;
};

// --- What the architectures make of their keys ------------------------------------------------------------

TEST(ModelSpecReader, LlamaInterleavesAndMayHaveBiases) {
  TinyModel model("llama");
  ModelSpec spec = model.read().value();
  EXPECT_EQ(spec.architecture, "llama");
  EXPECT_EQ(spec.vocab_size, 100);
  EXPECT_EQ(spec.width, 64);
  EXPECT_EQ(spec.context_length, 512);
  EXPECT_FLOAT_EQ(spec.norm_epsilon, 1e-5f);
  EXPECT_EQ(spec.embedding_scale, 1.0f);
  EXPECT_TRUE(spec.tied_embeddings);
  ASSERT_EQ(spec.layers.size(), 2u);
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_EQ(layer.heads, 4);
    EXPECT_EQ(layer.kv_heads, 2);
    EXPECT_EQ(layer.head_dim, 16);
    EXPECT_EQ(layer.value_dim, 16);
    EXPECT_EQ(layer.ffn_width, 96);
    EXPECT_EQ(layer.window, 0);
    EXPECT_EQ(layer.score_scale, 0.25f);
    EXPECT_EQ(layer.rope.pairing, RopeSpec::Pairing::kInterleaved);
    EXPECT_EQ(layer.rope.dims, 16);
    EXPECT_EQ(layer.rope.freq_base, 10000.0);
    EXPECT_EQ(layer.rope.position_scale, 1.0);
    EXPECT_TRUE(layer.rope.freq_divisors.empty());
    EXPECT_FALSE(layer.qkv_bias);
    EXPECT_FALSE(layer.qk_norm);
    EXPECT_EQ(layer.activation, Activation::kSilu);
  }
  model.add_weights();
  ASSERT_TRUE(model.read()) << model.error().message;
  for (const char* name : {"blk.1.attn_q.bias", "blk.1.attn_k.bias", "blk.1.attn_v.bias"})
    model.add_weight({.name = name, .shape = {name[11] == 'q' ? 64 : 32}});
  model.add_weight({.name = "output.weight", .shape = {100, 64}});
  spec = model.read().value();
  EXPECT_FALSE(spec.layers[0].qkv_bias);
  EXPECT_TRUE(spec.layers[1].qkv_bias);
  EXPECT_FALSE(spec.tied_embeddings);
}

TEST(ModelSpecReader, Qwen2HasBiasesAndPairsHalves) {
  TinyModel model("qwen2");
  const ModelSpec spec = model.add_weights().read().value();
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_TRUE(layer.qkv_bias);
    EXPECT_EQ(layer.rope.pairing, RopeSpec::Pairing::kHalves);
  }
}

TEST(ModelSpecReader, Gemma3SeesFarInEverySixthLayer) {
  TinyModel model("gemma3");
  model.set("block_count", uint32_t{18}).set("rope.freq_base", 1e6f);
  model.set("rope.scaling.type", "linear").set("rope.scaling.factor", 8.0f);
  const ModelSpec spec = model.read().value();
  EXPECT_EQ(spec.embedding_scale, 8.0f);
  for (int index = 0; index < 18; ++index) {
    const LayerSpec& layer = spec.layers[index];
    const bool far = index == 5 || index == 11 || index == 17;
    EXPECT_EQ(layer.window, far ? 0 : 32) << index;
    EXPECT_EQ(layer.rope.freq_base, far ? 1e6 : 1e4) << index;
    EXPECT_EQ(layer.rope.position_scale, far ? 0.125 : 1.0) << index;
    EXPECT_TRUE(layer.qk_norm && layer.post_attention_norm && layer.post_ffn_norm);
    EXPECT_EQ(layer.activation, Activation::kGeluTanh);
    EXPECT_EQ(layer.score_scale, 0.25f);
  }
  model.set("attention.sliding_window_pattern", uint32_t{3}).set("rope.freq_base_swa", 500.0f);
  EXPECT_EQ(model.read()->layers[2].window, 0);
  EXPECT_EQ(model.read()->layers[5].window, 0);
  EXPECT_EQ(model.read()->layers[4].rope.freq_base, 500.0);
  std::vector<bool> windowed(18, true);
  windowed[7] = false;
  model.set("attention.sliding_window_pattern", windowed);
  EXPECT_EQ(model.read()->layers[7].window, 0);
  EXPECT_EQ(model.read()->layers[5].window, 32);
}

TEST(ModelSpecReader, TheLargestGemma3ScalesScoresByItsWidth) {
  TinyModel model("gemma3");
  model.set("block_count", uint32_t{62}).set("embedding_length", uint32_t{168 * 4});
  EXPECT_FLOAT_EQ(model.read()->layers[0].score_scale, static_cast<float>(1.0 / std::sqrt(168.0)));
}

TEST(ModelSpecReader, LinearScalingIsOneOverTheFactor) {
  TinyModel model("llama");
  model.set("rope.scaling.factor", 4.0f);  // without a type: linear
  EXPECT_EQ(model.read()->layers[0].rope.position_scale, 0.25);
  model.set("rope.scaling.type", "linear");
  EXPECT_EQ(model.read()->layers[0].rope.position_scale, 0.25);
  model.set("rope.scaling.type", "none");
  EXPECT_EQ(model.read()->layers[0].rope.position_scale, 1.0);
  model.remove("rope.scaling.type").remove("rope.scaling.factor").set("rope.scale_linear", 2.0f);
  EXPECT_EQ(model.read()->layers[0].rope.position_scale, 0.5);
}

TEST(ModelSpecReader, HeadsAndWidthsMayDifferPerLayer) {
  TinyModel model("llama");
  model.set("attention.key_length", uint32_t{16}).set("attention.value_length", uint32_t{8});
  model.set("attention.head_count", std::vector<int32_t>{4, 6});
  model.set("attention.head_count_kv", std::vector<uint32_t>{2, 3});
  model.set("feed_forward_length", std::vector<int32_t>{96, 32});
  const ModelSpec spec = model.add_weights().read().value();
  EXPECT_EQ(spec.layers[1].heads, 6);
  EXPECT_EQ(spec.layers[1].kv_heads, 3);
  EXPECT_EQ(spec.layers[1].ffn_width, 32);
  EXPECT_EQ(spec.layers[1].value_dim, 8);
  EXPECT_EQ(layer_weight_names(spec, 1).attention_output.shape, (std::vector<int64_t>{64, 48}));
  EXPECT_EQ(spec.kv_geometry(KvType::kF16).groups.size(), 2u);
}

TEST(ModelSpecReader, LlamaTakesDivisorsFromItsTensor) {
  TinyModel model("llama");
  model.add_weights();
  const std::vector<float> divisors = {1, 1, 2, 3, 4, 5, 6, 32};
  model.writer.add_tensor_f32("rope_freqs.weight", {8}, divisors);
  EXPECT_EQ(model.read()->layers[1].rope.freq_divisors, divisors);
  for (float bad :
       {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> spoilt = divisors;
    spoilt[3] = bad;
    const auto bytes = std::as_bytes(std::span(spoilt));
    model.writer.tensors().back().bytes.assign(bytes.begin(), bytes.end());
    EXPECT_EQ(model.error().field, "rope_freqs.weight");
  }
  model.writer.tensors().back().shape = {4, 2};
  EXPECT_EQ(model.error().field, "rope_freqs.weight");
}

// --- Refusals
// -----------------------------------------------------------------------------------------------

TEST(ModelSpecReader, UnknownArchitecturesAreNamedWithTheKnown) {
  TinyModel model("mamba");
  const Error error = model.error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_EQ(error.field, "general.architecture");
  EXPECT_NE(error.message.find("\"mamba\""), std::string::npos) << error.message;
  for (std::string_view name : known_architectures())
    EXPECT_NE(error.message.find(name), std::string::npos) << error.message;
  model.writer.remove("general.architecture");
  EXPECT_EQ(model.error().code, ErrorCode::kCorruptFile);
  TinyModel adapter("llama");
  adapter.writer.add("general.type", "adapter");
  EXPECT_EQ(adapter.error().field, "general.type");
}

struct BadKey {
  const char* key;
  GgufEncoded value;
  ErrorCode code = ErrorCode::kCorruptFile;
};

TEST(ModelSpecReader, ValuesOutOfRangeAreNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const BadKey bad_keys[] = {
      {"block_count", gguf_encode(uint32_t{0})},
      {"block_count", gguf_encode(UINT32_MAX)},
      {"block_count", gguf_encode("2")},
      {"context_length", gguf_encode(uint32_t{0})},
      {"context_length", gguf_encode(int64_t{1} << 40)},
      {"embedding_length", gguf_encode(int32_t{-64})},
      {"embedding_length", gguf_encode(UINT64_MAX)},
      {"feed_forward_length", gguf_encode(uint32_t{0})},
      {"feed_forward_length", gguf_encode(std::vector<uint32_t>{96})},
      {"feed_forward_length", gguf_encode(std::vector<float>{96, 96})},
      {"attention.head_count", gguf_encode(uint32_t{0})},
      {"attention.head_count", gguf_encode(uint32_t{3})},
      {"attention.head_count", gguf_encode(std::vector<uint64_t>{4, uint64_t{1} << 40})},
      {"attention.head_count_kv", gguf_encode(uint32_t{5000})},
      {"attention.key_length", gguf_encode(uint32_t{0})},
      {"attention.value_length", gguf_encode(uint32_t{1 << 20})},
      {"attention.layer_norm_rms_epsilon", gguf_encode(0.0f)},
      {"attention.layer_norm_rms_epsilon", gguf_encode(-1e-5f)},
      {"attention.layer_norm_rms_epsilon", gguf_encode(nan)},
      {"rope.freq_base", gguf_encode(0.0f)},
      {"rope.freq_base", gguf_encode(infinity)},
      {"rope.freq_base", gguf_encode(uint32_t{10000})},
      {"rope.dimension_count", gguf_encode(uint32_t{18})},
      {"rope.dimension_count", gguf_encode(uint32_t{15})},
      {"rope.scaling.factor", gguf_encode(-2.0f)},
      {"rope.scaling.factor", gguf_encode(nan)},
      {"vocab_size", gguf_encode(uint32_t{99})},
      {"vocab_size", gguf_encode(uint32_t{0})},
      {"attention.scale", gguf_encode(0.0f)},
      {"final_logit_softcapping", gguf_encode(-1.0f)},
      {"rope.scaling.type", gguf_encode("yarn"), ErrorCode::kUnsupported},
      {"expert_count", gguf_encode(uint32_t{8}), ErrorCode::kUnsupported},
      {"attn_logit_softcapping", gguf_encode(50.0f), ErrorCode::kUnsupported},
      {"logit_scale", gguf_encode(0.5f), ErrorCode::kUnsupported},
      {"residual_scale", gguf_encode(0.5f), ErrorCode::kUnsupported},
      {"attention.clamp_kqv", gguf_encode(8.0f), ErrorCode::kUnsupported},
      {"rope.scaling.attn_factor", gguf_encode(1.2f), ErrorCode::kUnsupported},
      {"attention.causal", gguf_encode(false), ErrorCode::kUnsupported},
      {"a_key_of_the_future", gguf_encode(uint8_t{1}), ErrorCode::kUnsupported},
  };
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    for (const BadKey& bad : bad_keys) {
      TinyModel model(architecture);
      model.writer.set_encoded(std::string(architecture) + "." + bad.key, bad.value);
      const Error error = model.error();
      EXPECT_EQ(error.code, bad.code) << error.message;
      EXPECT_EQ(error.field, std::string(architecture) + "." + bad.key) << error.message;
      EXPECT_NE(error.message.find("at byte "), std::string::npos) << error.message;
    }
  }
}

TEST(ModelSpecReader, MissingKeysAreNamed) {
  for (const char* key : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    const Error error = TinyModel("llama").remove(key).error();
    EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
    EXPECT_EQ(error.field, std::string("llama.") + key);
  }
  EXPECT_EQ(TinyModel("gemma3").remove("attention.sliding_window").error().field,
            "gemma3.attention.sliding_window");
  EXPECT_EQ(TinyModel("gemma3").set("attention.sliding_window", uint32_t{0}).error().field,
            "gemma3.attention.sliding_window");
}

TEST(ModelSpecReader, WeightsAreAllThereAndAllUsed) {
  TinyModel missing("qwen2");
  missing.add_weights();
  ASSERT_TRUE(missing.read());
  std::erase_if(missing.writer.tensors(),
                [](const GgufTensorData& tensor) { return tensor.name == "blk.1.attn_k.bias"; });
  EXPECT_EQ(missing.error().field, "blk.1.attn_k.bias");
  EXPECT_EQ(missing.error().code, ErrorCode::kCorruptFile);

  TinyModel misshapen("llama");
  misshapen.add_weights();
  for (GgufTensorData& tensor : misshapen.writer.tensors()) {
    if (tensor.name == "blk.0.ffn_down.weight") std::swap(tensor.shape[0], tensor.shape[1]);
  }
  const Error error = misshapen.error();
  EXPECT_EQ(error.field, "blk.0.ffn_down.weight");
  EXPECT_NE(error.message.find("[96, 64]"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("[64, 96]"), std::string::npos) << error.message;

  TinyModel extra("llama");
  extra.add_weights();
  extra.add_weight({.name = "blk.0.attn_output.bias", .shape = {64}});
  EXPECT_EQ(extra.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(extra.error().field, "blk.0.attn_output.bias");
}

TEST(ModelSpecReader, TooManyKindsOfLayersAreRefused) {
  TinyModel model("llama");
  model.set("block_count", uint32_t{5}).set("attention.head_count", uint32_t{60});
  model.set("attention.key_length", uint32_t{4}).set("attention.value_length", uint32_t{4});
  model.set("attention.head_count_kv", std::vector<uint32_t>{1, 2, 3, 4, 1});
  EXPECT_TRUE(model.read());
  model.set("attention.head_count_kv", std::vector<uint32_t>{1, 2, 3, 4, 5});
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
}

// What other sources say about a model (config.json of the folder, the card of the model).
struct KnownModel {
  const char* file;
  const char* architecture;
  int layers, width, ffn_width, heads, kv_heads, head_dim, vocab, context;
  double freq_base;
  bool tied;
};

class KnownFile : public testing::TestWithParam<KnownModel> {};

TEST_P(KnownFile, HasItsPublishedShape) {
  const KnownModel& known = GetParam();
  const std::string name(known.file);
  const std::filesystem::path path = name.contains('/') ? test::shared_path(name) : test::model_path(name);
  SKIP_WITHOUT(path);
  auto file = GgufFile::open(path.string());
  ASSERT_TRUE(file) << file.error().message;
  auto spec = read_model_spec(*file);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->architecture, known.architecture);
  EXPECT_EQ(static_cast<int>(spec->layers.size()), known.layers);
  EXPECT_EQ(spec->width, known.width);
  EXPECT_EQ(spec->vocab_size, known.vocab);
  EXPECT_EQ(spec->context_length, known.context);
  EXPECT_EQ(spec->tied_embeddings, known.tied);
  const LayerSpec& last = spec->layers[spec->architecture == "gemma3" ? 5 : known.layers - 1];
  EXPECT_EQ(last.heads, known.heads);
  EXPECT_EQ(last.kv_heads, known.kv_heads);
  EXPECT_EQ(last.head_dim, known.head_dim);
  EXPECT_EQ(last.rope.dims, known.head_dim);
  EXPECT_EQ(last.ffn_width, known.ffn_width);
  EXPECT_EQ(last.rope.freq_base, known.freq_base);
  EXPECT_FLOAT_EQ(last.score_scale, 1 / std::sqrt(static_cast<float>(known.head_dim)));
}

INSTANTIATE_TEST_SUITE_P(
    ModelSpecReader, KnownFile,
    testing::Values(
        KnownModel{"arch/llama/model.gguf", "llama", 2, 64, 96, 4, 2, 16, 512, 512, 1e4, false},
        KnownModel{"arch/llama-llama3rope/model.gguf", "llama", 2, 64, 96, 2, 1, 32, 512, 512, 5e5, true},
        KnownModel{"arch/llama-linear/model.gguf", "llama", 2, 64, 96, 4, 2, 16, 512, 512, 1e4, true},
        KnownModel{"arch/qwen2/model.gguf", "qwen2", 2, 64, 96, 4, 2, 16, 512, 512, 1e4, true},
        KnownModel{"arch/gemma3_text/model.gguf", "gemma3", 7, 48, 64, 3, 1, 16, 512, 512, 1e6, true},
        KnownModel{"models/llama-2-tiny-random/llama-2-tiny-random.gguf", "llama", 1, 8, 32, 2, 2, 4, 32000,
                   4096, 1e4, false},
        KnownModel{"tokenizers/llama.cpp-vocabs/ggml-vocab-llama-spm.gguf", "llama", 32, 4096, 11008, 32, 32,
                   128, 32000, 4096, 1e4, true},
        KnownModel{"SmolLM2-135M-Instruct.Q4_1.gguf", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5,
                   true},
        KnownModel{"gemma-3-270m-q4_k_m.gguf", "gemma3", 18, 640, 2048, 4, 1, 256, 262144, 32768, 1e6, true},
        KnownModel{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2", 24, 896, 4864, 14, 2, 64, 151936,
                   32768, 1e6, false},
        KnownModel{"qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936,
                   32768, 1e6, false}),
    [](const auto& info) { return "Model" + std::to_string(info.index); });

TEST(ModelSpecReader, FilesOfOtherArchitecturesAreRefusedByName) {
  const std::filesystem::path folder = test::shared_folder() / "data/arch";
  SKIP_WITHOUT(folder);
  int refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path path = entry.path() / "model.gguf";
    if (!std::filesystem::exists(path)) continue;
    auto file = GgufFile::open(path.string());
    ASSERT_TRUE(file) << file.error().message;
    auto spec = read_model_spec(*file);
    if (spec) continue;
    ++refused;
    EXPECT_EQ(spec.error().code, ErrorCode::kUnsupported) << spec.error().message;
    const std::string name = entry.path().filename().string();
    if (name == "llama-yarn") {
      EXPECT_EQ(spec.error().field, "llama.rope.scaling.type");
    }
    if (name == "mixtral") {
      EXPECT_EQ(spec.error().field, "llama.expert_count");
    }
    if (name == "gemma2") {
      EXPECT_NE(spec.error().message.find("\"gemma2\""), std::string::npos);
    }
  }
  EXPECT_GT(refused, 20);
}

TEST(ModelSpecReader, Llama3DivisorsAndScalingComeFromTheFiles) {
  const std::filesystem::path folder = test::shared_folder() / "data/arch";
  SKIP_WITHOUT(folder);
  auto llama3 = GgufFile::open((folder / "llama-llama3rope/model.gguf").string());
  const ModelSpec spec = read_model_spec(llama3.value()).value();
  const std::vector<float>& divisors = spec.layers[0].rope.freq_divisors;
  ASSERT_EQ(divisors.size(), 16u);
  EXPECT_EQ(divisors.front(), 1.0f);  // the fastest pairs are not scaled, the slowest by the whole factor
  EXPECT_GT(divisors.back(), 1.0f);
  auto linear = GgufFile::open((folder / "llama-linear/model.gguf").string());
  EXPECT_EQ(read_model_spec(linear.value())->layers[0].rope.position_scale, 0.25);
}

}  // namespace
}  // namespace quire
