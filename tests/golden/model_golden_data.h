// The recorded answers of an independent float32 implementation, as data. Fields: README of the goldens.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"

namespace quire::test {

// One of the models that goldens exist for.
struct GoldenModel {
  std::string folder;
  std::string file;
  // Windows of the perplexity text that are evaluated: all 16 where that is quick.
  int exact_windows = 16;
  int int8_windows = 16;
  // The first position of the largest model is left out of int8 comparisons: its residual stream is so long
  // that 8-bit activations starve it (goldens' README).
  int int8_first_position = 0;
};

[[nodiscard]] const std::vector<GoldenModel>& golden_models();
[[nodiscard]] std::string golden_name(const GoldenModel& model);  // for test names

struct GoldenGreedy {
  std::vector<TokenId> ids;
  std::vector<double> lp;
  std::vector<double> margin;
};

struct GoldenPrompt {
  std::string id;
  std::vector<TokenId> ids;
  std::vector<double> lse;
  std::vector<std::vector<TokenId>> top_ids;
  std::vector<std::vector<double>> top_lp;
  std::vector<double> next_lp;
  GoldenGreedy greedy;
};

[[nodiscard]] std::vector<GoldenPrompt> read_golden_prompts(const std::string& path);
[[nodiscard]] boost::json::value read_json(const std::string& path);
[[nodiscard]] std::string read_gzip(const std::string& path);
[[nodiscard]] std::vector<double> numbers(const boost::json::value& array);
[[nodiscard]] std::vector<TokenId> token_ids(const boost::json::value& array);

// log(sum(exp(logits))) in double.
[[nodiscard]] double log_sum_exp(std::span<const float> logits);
// The first of the largest.
[[nodiscard]] TokenId arg_max(std::span<const float> logits);

// How far an engine's answers are from the recorded ones.
struct Deviation {
  int positions = 0;
  int same_top1 = 0;
  double kl_sum = 0;             // p (log p - log q) over the ten best of the recorded distribution
  double kl_normalized_sum = 0;  // the same with both made to sum to 1 over these ten
  double top1_sum = 0;           // |difference| of the log-probability of the recorded best token
  double top1_max = 0;

  void add(const GoldenPrompt& prompt, Position position, std::span<const float> logits);
  [[nodiscard]] double mean_kl() const { return kl_sum / positions; }
  [[nodiscard]] double mean_kl_normalized() const { return kl_normalized_sum / positions; }
  [[nodiscard]] double mean_top1() const { return top1_sum / positions; }
  [[nodiscard]] double agreement() const { return static_cast<double>(same_top1) / positions; }
};

}  // namespace quire::test
