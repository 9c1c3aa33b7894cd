// For tests: random models small enough to run thousands of steps, with a byte vocabulary.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "files/gguf_file.h"
#include "files/gguf_writer.h"
#include "model/model.h"
#include "model/weight_names.h"

namespace quire {

inline constexpr int kTinyVocab = 260;
inline constexpr int32_t kTinyEnd = 256;     // the end-of-sequence token
inline constexpr int32_t kTinyBroken = 259;  // its embedding is NaN: whoever reads it gets no sane logits
inline constexpr int kTinyContext = 512;

// Byte b as the byte-level vocabularies write it.
inline std::string byte_piece(int b) {
  const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  int code = b;
  if (!printable) {
    code = 256;
    for (int other = 0; other < b; ++other) {
      bool other_printable =
          (other >= 33 && other <= 126) || (other >= 161 && other <= 172) || (other >= 174 && other <= 255);
      code += other_printable ? 0 : 1;
    }
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

enum class TinyKind { kFull, kWindowed };

inline GgufWriter tiny_metadata(TinyKind kind) {
  const std::string arch = kind == TinyKind::kFull ? "llama" : "gemma3";
  GgufWriter writer;
  writer.add("general.architecture", arch.c_str());
  writer.add("general.name", "tiny");
  writer.add(arch + ".block_count", uint32_t{kind == TinyKind::kFull ? 2u : 4u});
  writer.add(arch + ".context_length", uint32_t{kTinyContext});
  writer.add(arch + ".embedding_length", uint32_t{64});
  writer.add(arch + ".feed_forward_length", uint32_t{96});
  writer.add(arch + ".attention.head_count", uint32_t{4});
  writer.add(arch + ".attention.head_count_kv", uint32_t{2});
  writer.add(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  writer.add(arch + ".rope.freq_base", 1e4f);
  writer.add(arch + ".vocab_size", uint32_t{kTinyVocab});
  if (kind == TinyKind::kWindowed) {
    writer.add(arch + ".attention.key_length", uint32_t{16});
    writer.add(arch + ".attention.value_length", uint32_t{16});
    writer.add(arch + ".attention.sliding_window", uint32_t{48});
    writer.add(arch + ".attention.sliding_window_pattern", uint32_t{2});
  }
  std::vector<std::string> tokens;
  std::vector<int32_t> types(kTinyVocab, 1);
  for (int b = 0; b < 256; ++b) tokens.push_back(byte_piece(b));
  tokens.insert(tokens.end(), {"<|endoftext|>", "<|one|>", "ab", "<|broken|>"});
  for (int control : {256, 257, 259}) types[static_cast<size_t>(control)] = 3;
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", "gpt-2");
  writer.add("tokenizer.ggml.tokens", tokens);
  writer.add("tokenizer.ggml.token_type", types);
  writer.add("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  writer.add("tokenizer.ggml.eos_token_id", uint32_t{kTinyEnd});
  return writer;
}

// Draws every weight that the architecture wants.
class TinyWeights {
 public:
  explicit TinyWeights(GgufWriter& writer) : writer_(writer) {}

  void add_all() {
    const auto bytes = writer_.bytes();
    const GgufFile file = GgufFile::parse(bytes, "tiny").value();
    const ModelSpec spec = read_model_spec(file).value();
    const ModelWeightNames model = model_weight_names(spec);
    // An output matrix of its own: the broken embedding must not reach everybody's logits.
    const WeightName output{.name = "output.weight", .shape = model.token_embedding.shape};
    for (const WeightName* weight : {&model.token_embedding, &model.output_norm, &output}) add(*weight);
    for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
      const LayerWeightNames n = layer_weight_names(spec, layer);
      for (const WeightName* weight :
           {&n.attention_norm, &n.query, &n.key, &n.value, &n.query_bias, &n.key_bias, &n.value_bias,
            &n.query_norm, &n.key_norm, &n.attention_output, &n.post_attention_norm, &n.ffn_norm, &n.ffn_gate,
            &n.ffn_up, &n.ffn_down, &n.post_ffn_norm}) {
        add(*weight);
      }
    }
  }

 private:
  void add(const WeightName& weight) {
    if (!weight.present()) return;
    int64_t count = 1;
    for (int64_t extent : weight.shape) count *= extent;
    std::vector<float> values(static_cast<size_t>(count));
    const bool matrix = weight.shape.size() == 2;
    std::normal_distribution<float> normal(matrix ? 0.0f : 1.0f, matrix ? 0.25f : 0.1f);
    for (float& value : values) value = normal(random_);
    if (weight.name == "token_embd.weight") values[static_cast<size_t>(kTinyBroken) * 64] = NAN;
    writer_.add_tensor_f32(weight.name, weight.shape, values);
  }

  GgufWriter& writer_;
  std::mt19937 random_{20};
};

// A file that goes when the test program ends.
struct TinyModelFile {
  std::string path;

  TinyModelFile() = default;
  TinyModelFile(const TinyModelFile&) = delete;
  TinyModelFile& operator=(const TinyModelFile&) = delete;
  ~TinyModelFile() {
    if (!path.empty()) std::remove(path.c_str());
  }
};

// The path of such a model, written once per test program.
inline const std::string& tiny_model_path(TinyKind kind) {
  static TinyModelFile files[2];
  std::string& path = files[static_cast<int>(kind)].path;
  if (path.empty()) {
    GgufWriter writer = tiny_metadata(kind);
    TinyWeights(writer).add_all();
    path = testing::TempDir() + "tiny_model_" + std::to_string(getpid()) + "_" +
           std::to_string(static_cast<int>(kind)) + ".gguf";
    EXPECT_TRUE(writer.write(path).has_value());
  }
  return path;
}

}  // namespace quire
