#include "tests/golden/model_golden_data.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/check.h"

namespace quire::test {

const std::vector<GoldenModel>& golden_models() {
  static const std::vector<GoldenModel> models = {
      {.folder = "smollm2-135m", .file = "SmolLM2-135M-Instruct.Q4_1.gguf", .int8_windows = 8},
      {.folder = "gemma-3-270m", .file = "gemma-3-270m-q4_k_m.gguf", .exact_windows = 3, .int8_windows = 4},
      {.folder = "qwen2.5-coder-0.5b",
       .file = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
       .exact_windows = 2,
       .int8_windows = 4},
      {.folder = "qwen2.5-coder-1.5b",
       .file = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
       .exact_windows = 1,
       .int8_windows = 2,
       .int8_first_position = 1},
  };
  return models;
}

std::string golden_name(const GoldenModel& model) {
  std::string name = model.folder;
  std::ranges::replace_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

std::string read_gzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  CHECK(file != nullptr);
  std::string text;
  std::array<char, 1 << 16> buffer;
  int count = 0;
  while ((count = gzread(file, buffer.data(), buffer.size())) > 0) text.append(buffer.data(), count);
  CHECK(count == 0);
  gzclose(file);
  return text;
}

boost::json::value read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return boost::json::parse(text.str());
}

std::vector<double> numbers(const boost::json::value& array) {
  std::vector<double> values;
  for (const boost::json::value& value : array.as_array()) values.push_back(value.to_number<double>());
  return values;
}

std::vector<TokenId> token_ids(const boost::json::value& array) {
  std::vector<TokenId> ids;
  for (const boost::json::value& value : array.as_array()) ids.push_back(value.to_number<TokenId>());
  return ids;
}

std::vector<GoldenPrompt> read_golden_prompts(const std::string& path) {
  std::vector<GoldenPrompt> prompts;
  std::istringstream lines(read_gzip(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    boost::json::value json = boost::json::parse(line);
    GoldenPrompt prompt;
    prompt.id = std::string(json.at("id").as_string());
    prompt.ids = token_ids(json.at("ids"));
    prompt.lse = numbers(json.at("lse"));
    for (const auto& ids : json.at("top_ids").as_array()) prompt.top_ids.push_back(token_ids(ids));
    for (const auto& lps : json.at("top_lp").as_array()) prompt.top_lp.push_back(numbers(lps));
    prompt.next_lp = numbers(json.at("next_lp"));
    const boost::json::value& greedy = json.at("greedy");
    prompt.greedy = {token_ids(greedy.at("ids")), numbers(greedy.at("lp")), numbers(greedy.at("margin"))};
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

double log_sum_exp(std::span<const float> logits) {
  float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

TokenId arg_max(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

void Deviation::add(const GoldenPrompt& prompt, Position position, std::span<const float> logits) {
  const std::vector<TokenId>& ids = prompt.top_ids[position];
  const std::vector<double>& expected = prompt.top_lp[position];
  double lse = log_sum_exp(logits);
  double expected_mass = 0;
  double mass = 0;
  double kl = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    double lp = logits[ids[i]] - lse;
    expected_mass += std::exp(expected[i]);
    mass += std::exp(lp);
    kl += std::exp(expected[i]) * (expected[i] - lp);
  }
  double difference = std::abs(logits[ids[0]] - lse - expected[0]);
  ++positions;
  same_top1 += arg_max(logits) == ids[0] ? 1 : 0;
  kl_sum += kl;
  kl_normalized_sum += kl / expected_mass + std::log(mass) - std::log(expected_mass);
  top1_sum += difference;
  top1_max = std::max(top1_max, difference);
}

}  // namespace quire::test
