// What the attention tests compute: sequences with K, V and q of their own, and the exact answer.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kernel_table.h"
#include "kernels/key_bias.h"
#include "kernels/kv_reference.h"

namespace quire {

struct ModelShape {
  int heads = 4;
  int kv_heads = 2;
  int key_dim = 32;
  int value_dim = 32;
  int window = 0;
  float softcap = 0;
  KvType type = KvType::kF16;
  float bias = 0;  // of K, in a few dimensions, kept apart from the codes; 0 = none
};

// Tokens [0, past) are in the cache; tokens [past, past + rows) are the query rows. The first `common` tokens
// are those of the sequence before. A `spoiler` other than 0 stands in some places of q and of all other K
// and V.
struct Lengths {
  int past;
  int rows;
  int common = 0;
  float spoiler = 0;
};

// K, V and q of some sequences: all that the answer may depend on.
class History {
 public:
  History(ModelShape shape, std::vector<Lengths> lengths, uint32_t seed)
      : shape_(shape), lengths_(std::move(lengths)), random_(seed) {
    RopeSpec rope{.dims = shape.key_dim / 4 * 2, .freq_base = 1e4, .freq_divisors = {}};
    if (seed % 2 == 0) rope.pairing = RopeSpec::Pairing::kInterleaved;
    table_ = make_key_bias_table(make_rope_frequencies(rope), shape.key_dim, 2);
    if (shape.bias != 0) {
      bias_ = normals(shape.kv_heads * shape.key_dim, 1.0f);
      for (size_t i = 0; i < bias_.size(); i += 3) bias_[i] *= shape.bias;
    }
    for (size_t s = 0; s < lengths_.size(); ++s) add_sequence(s);
  }

  const ModelShape& shape() const { return shape_; }
  int count() const { return static_cast<int>(lengths_.size()); }
  const Lengths& lengths(int s) const { return lengths_[static_cast<size_t>(s)]; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.key_dim)); }
  const KeyBiasTable& bias_table() const { return table_; }
  const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }

  // What is written: without the bias.
  const float* key(int s, int token, int kv_head) const { return key_at(keys_, s, token, kv_head); }
  const float* value(int s, int token, int kv_head) const {
    return at(values_, s, token * shape_.kv_heads + kv_head, shape_.value_dim);
  }
  const float* query(int s, int row, int head) const {
    return at(queries_, s, row * shape_.heads + head, shape_.key_dim);
  }
  // What the block then holds, and with the bias.
  const double* exact_key(int s, int token, int kv_head) const {
    return key_at(exact_keys_, s, token, kv_head);
  }
  const double* exact_value(int s, int token, int kv_head) const {
    return at(exact_values_, s, token * shape_.kv_heads + kv_head, shape_.value_dim);
  }

 private:
  template <class T>
  using PerSequence = std::vector<std::vector<T>>;

  template <class T>
  static const T* at(const PerSequence<T>& x, int s, int index, int dims) {
    return x[static_cast<size_t>(s)].data() + static_cast<size_t>(index) * static_cast<size_t>(dims);
  }
  template <class T>
  const T* key_at(const PerSequence<T>& x, int s, int token, int kv_head) const {
    return at(x, s, token * shape_.kv_heads + kv_head, shape_.key_dim);
  }

  std::vector<float> normals(int count, float spread) {
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> x(static_cast<size_t>(count));
    for (float& v : x) v = spread * normal(random_);
    return x;
  }

  void add_sequence(size_t s) {
    const Lengths& l = lengths_[s];
    const int tokens = l.past + l.rows;
    keys_.push_back(normals(tokens * shape_.kv_heads * shape_.key_dim, 1.5f));
    values_.push_back(normals(tokens * shape_.kv_heads * shape_.value_dim, 1.0f));
    queries_.push_back(normals(l.rows * shape_.heads * shape_.key_dim, 1.5f));
    if (l.common > 0) {
      std::copy_n(keys_[s - 1].begin(), l.common * shape_.kv_heads * shape_.key_dim, keys_[s].begin());
      std::copy_n(values_[s - 1].begin(), l.common * shape_.kv_heads * shape_.value_dim, values_[s].begin());
    }
    if (l.spoiler != 0) {
      spoil(l, l.common * shape_.kv_heads * shape_.key_dim, keys_[s]);
      spoil(l, l.common * shape_.kv_heads * shape_.value_dim, values_[s]);
      spoil(l, 0, queries_[s]);
    }
    exact_keys_.emplace_back();
    exact_values_.emplace_back();
    for (int token = 0; token < tokens; ++token) {
      for (int head = 0; head < shape_.kv_heads; ++head) store(static_cast<int>(s), token, head);
    }
  }

  static void spoil(const Lengths& l, int begin, std::vector<float>& x) {
    for (size_t i = static_cast<size_t>(begin); i < x.size(); i += 37) x[i] = l.spoiler;
  }

  // Through a block of one token.
  void store(int s, int token, int head) {
    std::vector<std::byte> slice(kv_head_bytes(shape_.type, 1, shape_.key_dim, shape_.value_dim));
    const KvLayerView kv{slice.data(),   slice.size(),     slice.size(), 1, 1,
                         shape_.key_dim, shape_.value_dim, shape_.type};
    find_kernels("scalar")->attention.write_kv(kv, BlockId{0}, 0, 0, key(s, token, head),
                                               value(s, token, head));
    std::vector<double> k = KvReference(kv, slice.data()).key(0);
    if (bias() != nullptr) add_bias(token, head, k);
    const std::vector<double> v = KvReference(kv, slice.data()).value(0);
    exact_keys_.back().insert(exact_keys_.back().end(), k.begin(), k.end());
    exact_values_.back().insert(exact_values_.back().end(), v.begin(), v.end());
  }

  void add_bias(int token, int head, std::vector<double>& key) const {
    const float* b = bias() + head * shape_.key_dim;
    const RopeFrequencies& rope = table_.rope;
    const bool halves = rope.pairing == RopeSpec::Pairing::kHalves;
    for (int i = 0; i < rope.dims / 2; ++i) {
      const int first = halves ? i : 2 * i;
      const int second = halves ? i + rope.dims / 2 : 2 * i + 1;
      const double angle = token * rope.frequencies[static_cast<size_t>(i)];
      key[static_cast<size_t>(first)] += b[first] * std::cos(angle) - b[second] * std::sin(angle);
      key[static_cast<size_t>(second)] += b[second] * std::cos(angle) + b[first] * std::sin(angle);
    }
    for (int d = rope.dims; d < shape_.key_dim; ++d) key[static_cast<size_t>(d)] += b[d];
  }

  ModelShape shape_;
  std::vector<Lengths> lengths_;
  std::mt19937 random_;
  KeyBiasTable table_;
  std::vector<float> bias_;  // [kv_head][key_dim], before rotation
  PerSequence<float> keys_, values_, queries_;
  PerSequence<double> exact_keys_, exact_values_;
};

// What the kernels may deviate by, beside the exact answer.
struct Expected {
  double value;
  double bound;
};

inline double norm(const double* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

// One (row, head) of sequence s: [value_dim]. Bound: a score has key_dim + 1 roundings of Σ|q k| (softcap
// adds 1e-6 of itself), each p then has twice the largest of these errors and a few units of exp; sums have
// one rounding a token and a few a span. Rotations keep 2-norms, which bound the sums then, and have a
// rounding a level; the bias has twice as many terms and some more roundings each.
inline std::vector<Expected> oracle(const History& history, int s, int row, int head) {
  constexpr double kUnit = 0x1p-24;
  const ModelShape& shape = history.shape();
  const bool coded = kv_has_scales(shape.type);
  const double levels = coded ? 2 * std::log2(std::max(shape.key_dim, shape.value_dim)) + 8 : 0;
  const int position = history.lengths(s).past + row;
  const int first = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
  const int kv_head = head / (shape.heads / shape.kv_heads);
  const std::vector<double> q(history.query(s, row, head), history.query(s, row, head) + shape.key_dim);
  double bias_size = 0;
  if (history.bias() != nullptr) {
    const std::vector<double> b(history.bias() + kv_head * shape.key_dim,
                                history.bias() + (kv_head + 1) * shape.key_dim);
    bias_size = 2 * norm(q.data(), shape.key_dim) * norm(b.data(), shape.key_dim) * history.scale();
  }
  std::vector<double> scores;
  double score_error = 0;
  for (int t = first; t <= position; ++t) {
    const double* k = history.exact_key(s, t, kv_head);
    double score = 0, size = 0;
    for (int d = 0; d < shape.key_dim; ++d) {
      const double product = q[static_cast<size_t>(d)] * k[d] * history.scale();
      score += product;
      size += std::abs(product);
    }
    if (coded)
      size = norm(q.data(), shape.key_dim) * norm(k, shape.key_dim) * history.scale() + 2 * bias_size;
    double error = (shape.key_dim + 1 + levels) * kUnit * size + (shape.key_dim + 16) * kUnit * bias_size;
    if (shape.softcap > 0) {
      score = shape.softcap * std::tanh(score / shape.softcap);
      error += 1e-6 * std::abs(score);
    }
    score_error = std::max(score_error, error);
    scores.push_back(score);
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  const double tokens = position + 1 - first;
  const double relative = 2 * score_error + (8 + levels + tokens + 8 * (tokens / kSpanTokens + 2)) * kUnit;
  std::vector<Expected> out;
  for (int d = 0; d < shape.value_dim; ++d) {
    double sum = 0, value = 0, size = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      const double p = std::exp(scores[i] - max);
      const double* v = history.exact_value(s, first + static_cast<int>(i), kv_head);
      sum += p;
      value += p * v[d];
      size += p * (coded ? norm(v, shape.value_dim) : std::abs(v[d]));
    }
    out.push_back({value / sum, 2 * relative * size / sum});
  }
  return out;
}

}  // namespace quire
