// stories260K, a trained model that is small enough to recompute in float64: converted to GGUF here.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "files/gguf_writer.h"
#include "tests/data_paths.h"
#include "tests/golden/model_golden_data.h"
#include "tests/model_runner.h"

namespace quire::test {
namespace {

// The llama2.c format, version 0: seven int32, then float32 tensors, each for all layers.
class StoriesFile {
 public:
  explicit StoriesFile(const std::string& path) {
    std::ifstream input(path, std::ios::binary);
    std::ostringstream text;
    text << input.rdbuf();
    std::string bytes = text.str();
    std::memcpy(header_.data(), bytes.data(), sizeof(header_));
    values_.resize((bytes.size() - sizeof(header_)) / sizeof(float));
    std::memcpy(values_.data(), bytes.data() + sizeof(header_), values_.size() * sizeof(float));
  }

  std::vector<std::byte> to_gguf() {
    auto [dim, hidden, layers, heads, kv_heads, vocab, context] = header_;
    int kv_dim = dim / heads * kv_heads;
    auto number = [&](const char* key, int value) {
      writer_.add(std::string("llama.") + key, static_cast<uint32_t>(value));
    };
    writer_.add("general.architecture", "llama");
    number("block_count", layers);
    number("context_length", context);
    number("embedding_length", dim);
    number("feed_forward_length", hidden);
    number("attention.head_count", heads);
    number("attention.head_count_kv", kv_heads);
    number("rope.dimension_count", dim / heads);
    number("vocab_size", vocab);
    writer_.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    take("token_embd.weight", {vocab, dim});
    take_layers("attn_norm.weight", {dim});
    take_layers("attn_q.weight", {dim, dim});
    take_layers("attn_k.weight", {kv_dim, dim});
    take_layers("attn_v.weight", {kv_dim, dim});
    take_layers("attn_output.weight", {dim, dim});
    take_layers("ffn_norm.weight", {dim});
    take_layers("ffn_gate.weight", {hidden, dim});
    take_layers("ffn_down.weight", {dim, hidden});
    take_layers("ffn_up.weight", {hidden, dim});
    take("output_norm.weight", {dim});
    return writer_.bytes();
  }

 private:
  void take(const std::string& name, const std::vector<int64_t>& shape) {
    size_t count = 1;
    for (int64_t n : shape) count *= n;
    writer_.add_tensor_f32(name, shape, std::span(values_).subspan(next_, count));
    next_ += count;
  }

  void take_layers(const std::string& name, const std::vector<int64_t>& shape) {
    for (int layer = 0; layer < header_[2]; ++layer) take("blk." + std::to_string(layer) + "." + name, shape);
  }

  std::array<int32_t, 7> header_{};  // dim, hidden, layers, heads, kv heads, vocab, context
  std::vector<float> values_;
  size_t next_ = 0;
  GgufWriter writer_;
};

TEST(ModelStories, GreedyTextAndLogitsEqualFloat64) {
  SKIP_WITHOUT(shared_path("models/stories260K/stories260K.bin"));
  std::vector<std::byte> bytes = StoriesFile(shared_path("models/stories260K/stories260K.bin")).to_gguf();
  auto file = GgufFile::parse(bytes, "stories260K");
  ASSERT_TRUE(file.has_value());
  auto runner = ModelRunner::open(*file, {.kv_type = KvType::kF32, .kv_tokens = 512});
  ASSERT_TRUE(runner.has_value());
  boost::json::value golden = read_json(shared_path("models/stories260K/golden-greedy.json"));
  std::vector<TokenId> expected = token_ids(golden.at("greedy_ids"));
  std::map<Position, std::vector<double>> logits_at;
  for (const boost::json::value& at : golden.at("logits").as_array()) {
    logits_at[at.at("pos").to_number<Position>()] = numbers(at.at("logits"));
  }
  TestSequence sequence;
  TokenId token = expected[0];
  size_t compared = 0;
  for (size_t step = 1; step < expected.size(); ++step) {
    TokenId input = token;
    (*runner)->prefill(sequence, {&input, 1}, 1, 0, [&](Position position, std::span<const float> logits) {
      token = arg_max(logits);
      auto found = logits_at.find(position);
      if (found == logits_at.end()) return;
      ++compared;
      for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], found->second[i], 1e-3) << position;
    });
    ASSERT_EQ(token, expected[step]) << "step " << step;
  }
  EXPECT_GE(compared + 1, logits_at.size());
}

}  // namespace
}  // namespace quire::test
