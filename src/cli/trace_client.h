// Clients that send the requests of a trace to an engine.
#pragma once

#include <cstdint>
#include <optional>

#include "base/function_ref.h"
#include "base/result.h"
#include "cli/samples.h"
#include "engine/request_trace.h"
#include "quire/engine.h"

namespace quire {

struct TraceClientOptions {
  // When requests are sent: each as soon as the engine's inbox has room, or when its time has come.
  enum class Arrivals : uint8_t { kAtOnce, kTimed } arrivals = Arrivals::kAtOnce;
  double speed_up = 1;  // > 0; trace time passes so much faster
  // With kContext, a client goes away when it has its recorded tokens; the engine may make one or two more.
  AskedTokens asked = AskedTokens::kRecorded;
};

// What the clients saw. Tokens are those of requests that were not refused.
struct TraceAnswers {
  int64_t requests_done = 0;
  int64_t requests_refused = 0;  // they could never fit
  std::optional<Error> first_refusal{};
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;        // prompt tokens that the cache spared
  int64_t ideal_cached_tokens = 0;  // that an infinite cache would have
  int running_max = 0;              // sequences that held blocks, at most, as far as seen
  double seconds = 0;               // from the first submission to the last token
  Samples ttft_ms{};                // of each request: from its arrival to its first token
  Samples gap_ms{};                 // between tokens of one request
};

// Sends them all and reads every answer to its end; `on_done` hears how many have ended. An engine that is
// overloaded is asked again, and that time counts as waiting of a timed request; prompts are made before
// their time. Errors: of an answer.
[[nodiscard]] Result<TraceAnswers> send_trace(Engine& engine, const RequestTrace& trace,
                                              const TraceClientOptions& options,
                                              FunctionRef<void(int64_t)> on_done);

}  // namespace quire
