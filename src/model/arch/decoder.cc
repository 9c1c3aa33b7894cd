#include "model/arch/decoder.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "files/field_reader.h"

namespace quire {
namespace {

// Beyond any published model; they keep every product of two sizes far inside 64 bits.
constexpr IntRange kLayerCount{1, 1024};
constexpr IntRange kContextLength{1, 1 << 24};
constexpr IntRange kWidth{1, 1 << 17};
constexpr IntRange kFfnWidth{1, 1 << 20};
constexpr IntRange kHeads{1, 1024};
constexpr IntRange kHeadDim{1, 1024};
constexpr IntRange kVocabSize{1, 1 << 24};
constexpr FloatRange kEpsilon{1e-12, 1e-1};
constexpr FloatRange kFreqBase{1.0, 1e12};
constexpr FloatRange kScalingFactor{1e-3, 1e5};
constexpr FloatRange kScale{1e-6, 1e6};
constexpr FloatRange kSoftcap{0.0, 1e6};
constexpr double kFreqBaseDefault = 10000.0;
constexpr FloatRange kAnyNumber{-1e30, 1e30};
constexpr IntRange kAnyInteger{0, 1 << 30};

// A feature that is off at one value of its key and that this build does not have otherwise.
struct Absent {
  std::string_view key;
  std::variant<int, double, bool> neutral;
};
constexpr Absent kAbsentFeatures[] = {
    {"expert_count", 0},
    {"expert_shared_count", 0},
    {"pooling_type", 0},
    {"nextn_predict_layers", 0},
    {"attn_logit_softcapping", 0.0},
    {"attention.clamp_kqv", 0.0},
    {"attention.max_alibi_bias", 0.0},
    {"rope.scaling.attn_factor", 1.0},
    {"logit_scale", 1.0},
    {"residual_scale", 1.0},
    {"attention.causal", true},
    {"use_parallel_residual", false},
};

// Keys that tell of training or storage, or only count when another feature is on.
constexpr std::string_view kIgnoredKeys[] = {
    "tensor_data_layout",
    "attention.layer_norm_epsilon",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "expert_used_count",
};

Result<void> refuse_absent_features(HyperParameters& parameters) {
  auto refuse = [&](std::string_view key, auto value, auto neutral) -> Result<void> {
    if (!value || *value == neutral) return {};
    return parameters.wrong(ErrorCode::kUnsupported, key,
                            fmt::format("is {}, this build only runs models with {}", *value, neutral));
  };
  for (const Absent& feature : kAbsentFeatures) {
    const std::string_view key = feature.key;
    if (const auto* neutral = std::get_if<int>(&feature.neutral)) {
      TRY(refuse(key, TRY(parameters.optional_integer(key, kAnyInteger)), *neutral));
    } else if (const auto* number = std::get_if<double>(&feature.neutral)) {
      TRY(refuse(key, TRY(parameters.optional_number(key, kAnyNumber)), *number));
    } else {
      TRY(refuse(key, TRY(parameters.optional_flag(key)), std::get<bool>(feature.neutral)));
    }
  }
  for (std::string_view key : kIgnoredKeys) parameters.ignore(key);
  return {};
}

// Factor by which RoPE positions are multiplied: 1 / factor of linear scaling.
Result<double> read_position_scale(HyperParameters& parameters) {
  const auto type = TRY(parameters.optional_string("rope.scaling.type"));
  if (type && *type != "none" && *type != "linear") {
    return parameters.wrong(ErrorCode::kUnsupported, "rope.scaling.type",
                            fmt::format("is \"{}\", this build has linear and none", printable(*type)));
  }
  // Two names of one thing; a factor without a type means linear scaling; 0 means none.
  const FloatRange factor_or_none{0.0, kScalingFactor.max};
  auto factor = TRY(parameters.optional_number("rope.scaling.factor", factor_or_none));
  const auto old_factor = TRY(parameters.optional_number("rope.scale_linear", factor_or_none));
  if (!factor) factor = old_factor;
  if ((type && *type == "none") || factor.value_or(0.0) == 0.0) return 1.0;
  if (*factor < kScalingFactor.min) {
    return parameters.wrong(
        ErrorCode::kCorruptFile, "rope.scaling.factor",
        fmt::format("is {}, allowed are {} to {}", *factor, kScalingFactor.min, kScalingFactor.max));
  }
  return 1.0 / *factor;
}

// Without pairing and divisors.
Result<RopeSpec> read_rope(HyperParameters& parameters, int head_dim) {
  RopeSpec rope;
  const auto dims = TRY(parameters.optional_integer("rope.dimension_count", {0, head_dim}));
  rope.dims = dims.value_or(head_dim);
  if (rope.dims % 2 != 0) {
    return parameters.wrong(ErrorCode::kCorruptFile, dims ? "rope.dimension_count" : "attention.key_length",
                            fmt::format("gives {} rotated dimensions, an even number is needed", rope.dims));
  }
  rope.freq_base = TRY(parameters.optional_number("rope.freq_base", kFreqBase))
  .value_or(kFreqBaseDefault);
  rope.position_scale = TRY(read_position_scale(parameters));
  return rope;
}

// Heads and their sizes.
struct HeadShapes {
  std::vector<int> heads;     // [layer]
  std::vector<int> kv_heads;  // [layer]
  int head_dim = 0;
  int value_dim = 0;
};

Result<HeadShapes> read_heads(HyperParameters& parameters, int layers, int width) {
  HeadShapes shapes;
  const HyperParameters::PerLayer counts{.layers = layers, .range = kHeads};
  auto heads = TRY(parameters.optional_per_layer("attention.head_count", counts));
  if (!heads) return parameters.missing("attention.head_count");
  shapes.heads = std::move(*heads);
  shapes.kv_heads = TRY(parameters.optional_per_layer("attention.head_count_kv", counts))
  .value_or(shapes.heads);
  for (int layer = 0; layer < layers; ++layer) {
    if (shapes.heads[layer] % shapes.kv_heads[layer] != 0) {
      return parameters.wrong(ErrorCode::kCorruptFile, "attention.head_count",
                              fmt::format("is {}, no multiple of attention.head_count_kv {} (layer {})",
                                          shapes.heads[layer], shapes.kv_heads[layer], layer));
    }
  }
  const auto key_dim = TRY(parameters.optional_integer("attention.key_length", kHeadDim));
  const auto value_dim = TRY(parameters.optional_integer("attention.value_length", kHeadDim));
  if (!key_dim || !value_dim) {
    const int share = width / shapes.heads[0];
    if (width % shapes.heads[0] != 0 || share > kHeadDim.max) {
      return parameters.wrong(
          ErrorCode::kCorruptFile, "attention.head_count",
          fmt::format("is {}, which does not divide embedding_length {} into heads of at most {}",
                      shapes.heads[0], width, kHeadDim.max));
    }
    shapes.head_dim = key_dim.value_or(share);
    shapes.value_dim = value_dim.value_or(share);
  } else {
    shapes.head_dim = *key_dim;
    shapes.value_dim = *value_dim;
  }
  return shapes;
}

// The key, else the tokenizer's tokens, else the rows of the embedding; where several are there, they agree.
Result<int> read_vocab_size(HyperParameters& parameters) {
  const GgufFile& file = parameters.file();
  const auto key = TRY(parameters.optional_integer("vocab_size", kVocabSize));
  const std::string tokens_key = "tokenizer.ggml.tokens";
  const GgufArray* tokens = TRY(file.get_array(tokens_key));
  if (tokens != nullptr) {
    if (!std::holds_alternative<std::vector<std::string_view>>(tokens->elements) || tokens->size() == 0 ||
        tokens->size() > static_cast<size_t>(kVocabSize.max)) {
      return fail(ErrorCode::kCorruptFile, tokens_key, "{}: {} at byte {} is not an array of 1 to {} strings",
                  file.path(), tokens_key, file.offset_of(tokens_key).value_or(0), kVocabSize.max);
    }
    const int count = static_cast<int>(tokens->size());
    if (key && *key != count) {
      return parameters.wrong(ErrorCode::kCorruptFile, "vocab_size",
                              fmt::format("is {}, {} has {} tokens", *key, tokens_key, count));
    }
    return count;
  }
  if (key) return *key;
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape[0] > kVocabSize.max) return parameters.missing("vocab_size");
  return static_cast<int>(embedding->shape[0]);
}

Result<void> read_layers(HyperParameters& parameters, ModelSpec& spec) {
  const int count = TRY(parameters.integer("block_count", kLayerCount));
  const auto heads = TRY(read_heads(parameters, count, spec.width));
  const auto rope = TRY(read_rope(parameters, heads.head_dim));
  auto ffn_widths =
      TRY(parameters.optional_per_layer("feed_forward_length", {.layers = count, .range = kFfnWidth}));
  if (!ffn_widths) return parameters.missing("feed_forward_length");
  const auto score_scale = TRY(parameters.optional_number("attention.scale", kScale));
  for (int index = 0; index < count; ++index) {
    LayerSpec layer;
    layer.heads = heads.heads[index];
    layer.kv_heads = heads.kv_heads[index];
    layer.head_dim = heads.head_dim;
    layer.value_dim = heads.value_dim;
    layer.ffn_width = (*ffn_widths)[index];
    layer.score_scale = static_cast<float>(score_scale.value_or(1.0 / std::sqrt(heads.head_dim)));
    layer.rope = rope;
    spec.layers.push_back(std::move(layer));
  }
  return {};
}

}  // namespace

Result<ModelSpec> read_decoder_spec(HyperParameters& parameters) {
  const GgufFile& file = parameters.file();
  ModelSpec spec;
  spec.architecture = parameters.architecture();
  spec.name = std::string(TRY(file.get_string("general.name")).value_or(""));
  spec.vocab_size = TRY(read_vocab_size(parameters));
  spec.width = TRY(parameters.integer("embedding_length", kWidth));
  spec.context_length = TRY(parameters.integer("context_length", kContextLength));
  spec.norm_epsilon =
      static_cast<float>(TRY(parameters.number("attention.layer_norm_rms_epsilon", kEpsilon)));
  spec.embedding_scale =
      static_cast<float>(TRY(parameters.optional_number("embedding_scale", kScale)).value_or(1.0));
  spec.logit_softcap =
      static_cast<float>(TRY(parameters.optional_number("final_logit_softcapping", kSoftcap)).value_or(0.0));
  spec.tied_embeddings = file.find_tensor("output.weight") == nullptr;
  TRY(refuse_absent_features(parameters));
  TRY(read_layers(parameters, spec));
  return spec;
}

}  // namespace quire
