// Checkpoints inside the network, in exact mode: where a wrong layer shows first.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/data_paths.h"
#include "tests/golden/model_golden_data.h"
#include "tests/model_runner.h"

namespace quire::test {
namespace {

// (name, layer, row) → values.
using Probed = std::map<std::tuple<std::string, int, int>, std::vector<float>>;

double norm(std::span<const float> values) {
  double sum = 0;
  for (float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

// Rows of q and k of the llama architecture are stored so that rotated pairs are neighbours; the goldens have
// them half a head apart.
std::vector<float> pairs_to_halves(std::span<const float> values, int head_dim) {
  std::vector<float> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    size_t head = i / head_dim * head_dim;
    size_t pair = i % head_dim / 2;
    halves[head + pair + (i % 2 == 1 ? head_dim / 2 : 0)] = values[i];
  }
  return halves;
}

// Float32 noise is relative to the whole vector, not to each value.
void expect_values(const std::vector<double>& expected, std::span<const float> values, double scale,
                   const std::string& what) {
  ASSERT_GE(values.size(), expected.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-4 * scale + 2e-6) << what << " value " << i;
  }
}

void expect_checkpoint(const boost::json::value& expected, std::span<const float> values,
                       const std::string& what) {
  ASSERT_FALSE(values.empty()) << what << " was not probed";
  auto scale = expected.at("norm").to_number<double>();
  EXPECT_NEAR(norm(values), scale, 1e-4 * scale + 2e-6) << what;
  expect_values(numbers(expected.at("first8")), values, scale, what);
}

class ModelLayers : public testing::TestWithParam<GoldenModel> {
 protected:
  void run(const boost::json::value& golden, const std::string& path) {
    auto runner = ModelRunner::open(
        path, {.arithmetic = Arithmetic::kFloat32, .kv_type = KvType::kF32, .kv_tokens = 64});
    ASSERT_TRUE(runner.has_value());
    (*runner)->model().set_probe(
        [&](std::string_view name, int layer, int row, std::span<const float> values) {
          probed_[{std::string(name), layer, row}].assign(values.begin(), values.end());
        });
    TestSequence sequence;
    std::vector<TokenId> ids = token_ids(golden.at("ids"));
    StepPart part{&sequence, ids, static_cast<int>(ids.size()) - 1};
    LogitsView logits = (*runner)->step({&part, 1});
    EXPECT_NEAR(log_sum_exp(logits.row(0)), golden.at("logits_lse").to_number<double>(), 1e-3);
    interleaved_ = (*runner)->model().spec().layers[0].rope.pairing == RopeSpec::Pairing::kInterleaved;
  }

  std::span<const float> at(const std::string& name, int layer, int row) {
    return probed_[{name, layer, row}];
  }

  Probed probed_;
  bool interleaved_ = false;
};

TEST_P(ModelLayers, EveryCheckpointHolds) {
  std::string path = model_path(GetParam().file);
  std::string layers = shared_path("goldens/" + GetParam().folder + "/layers.json");
  SKIP_WITHOUT(path);
  SKIP_WITHOUT(layers);
  boost::json::value golden = read_json(layers);
  ASSERT_NO_FATAL_FAILURE(run(golden, path));
  auto row = golden.at("position").to_number<int>();
  auto head_dim = golden.at("head_dim").to_number<int>();
  expect_checkpoint(golden.at("embedding"), at("embedding", 0, row), "embedding");
  expect_checkpoint(golden.at("layer0_attn_norm"), at("attn_norm", 0, row), "attn_norm");
  std::span<const float> query = at("q_before_rope", 0, row);
  std::vector<float> halves = pairs_to_halves(query, head_dim);
  expect_checkpoint(golden.at("layer0_q_before_rope"), interleaved_ ? halves : query, "q");
  for (const boost::json::value& layer : golden.at("layers").as_array()) {
    auto index = layer.at("layer").to_number<int>();
    for (std::string name : {"attn_out", "mlp_out", "hidden"}) {
      expect_checkpoint(layer.at(name), at(name, index, row), name + " of layer " + std::to_string(index));
    }
  }
  auto layer_count = static_cast<int>(golden.at("layers").as_array().size());
  expect_checkpoint(golden.at("final_norm"), at("final_norm", layer_count, row), "final_norm");
  for (const boost::json::value& kv : golden.at("kv_layer0_head0").as_array()) {
    auto position = kv.at("position").to_number<int>();
    std::vector<double> key = numbers(kv.at(interleaved_ ? "k_after_rope_gguf_order" : "k_after_rope"));
    std::span<const float> probed = at("k_after_rope", 0, position).first(head_dim);
    expect_values(key, probed, norm(probed), "k");
    probed = at("v", 0, position).first(head_dim);
    expect_values(numbers(kv.at("v")), probed, norm(probed), "v");
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, ModelLayers, testing::ValuesIn(golden_models()),
                         [](const auto& info) { return golden_name(info.param); });

}  // namespace
}  // namespace quire::test
