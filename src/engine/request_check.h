// The door of the engine: what a request may ask for.
#pragma once

#include "base/result.h"
#include "quire/engine.h"

namespace quire {

struct RequestLimits {
  int vocab_size = 0;
  int sequences_max = 1;  // that may run at once
};

// Errors: kInvalidArgument with field, value and limit. Looks at the request alone; whether it fits the
// context and the pools is the scheduler's to say.
[[nodiscard]] Result<> validate_request(const Request& request, const RequestLimits& limits);

// Sequences that may live at once: samples, or beams.
[[nodiscard]] int sequences_wanted(const Request& request);
// Samples that are drawn.
[[nodiscard]] int samples_wanted(const Request& request);

}  // namespace quire
