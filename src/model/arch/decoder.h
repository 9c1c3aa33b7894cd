// What the decoder architectures of the llama family have in common.
#pragma once

#include "base/result.h"
#include "core/model_spec.h"
#include "model/arch/hyper_parameters.h"

namespace quire {

// Sizes, heads, norms, RoPE and vocabulary, as read from the keys that all these architectures share, with
// every layer alike in what a single key says. The architecture sets what its name alone tells: RoPE
// pairing, biases, extra norms, windows, activation, scales. Errors: kCorruptFile; kUnsupported for a feature
// that the file uses and this build lacks (the key is named).
[[nodiscard]] Result<ModelSpec> read_decoder_spec(HyperParameters& parameters);

}  // namespace quire
