// The architectures that this build knows; one file each.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/arch/hyper_parameters.h"

namespace quire {

// Each reads every key that changes the model's computation, or refuses it.
[[nodiscard]] Result<ModelSpec> read_llama_spec(HyperParameters& parameters);
[[nodiscard]] Result<ModelSpec> read_qwen2_spec(HyperParameters& parameters);
[[nodiscard]] Result<ModelSpec> read_gemma3_spec(HyperParameters& parameters);

}  // namespace quire
