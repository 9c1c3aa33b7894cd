#include "engine/engine_door.h"

#include <algorithm>
#include <random>
#include <utility>

#include "engine/request_check.h"
#include "engine/token_stream.h"

namespace quire {
namespace {

// Requests that want logits of every prompt token go in chunks of at most about this much of them.
constexpr uint64_t kPromptLogitsBytes = 32 << 20;
constexpr int kPromptChunkMin = 16;

uint64_t system_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

int EngineDoor::prefill_chunk(const Request& request) const {
  if (!request.prompt_logprobs) return request.prefill_chunk_tokens;
  const auto row_bytes = static_cast<uint64_t>(parts_.vocab_size) * sizeof(float);
  const int most = std::max(kPromptChunkMin, static_cast<int>(kPromptLogitsBytes / row_bytes));
  return request.prefill_chunk_tokens == 0 ? most : std::min(most, request.prefill_chunk_tokens);
}

Result<AcceptedRequest> EngineDoor::submit(Request request) {
  TRY(validate_request(request, {.vocab_size = parts_.vocab_size, .sequences_max = parts_.sequences_max}));
  SequenceRequest sequence;
  sequence.max_tokens = request.sampling.max_tokens;
  sequence.priority = request.priority;
  sequence.prefill_chunk_tokens = prefill_chunk(request);
  sequence.prompt_logits = request.prompt_logprobs ? PromptLogits::kAll : PromptLogits::kLast;
  sequence.sequences = sequences_wanted(request);
  sequence.pace = request.beam ? GroupPace::kTogether : GroupPace::kFree;
  sequence.prompt = std::move(request.prompt_token_ids);
  TRY(parts_.scheduler->check_admissible(sequence));
  sequence.scope = parts_.scopes->scope_of(request.cache_salt);
  const SeqId seq = sequence.seq = parts_.seq_ids->next();
  auto state = std::make_shared<TokenStream::State>(
      StreamStart{.seq = seq,
                  .inbox = parts_.inbox,
                  .tokenizer = parts_.tokenizer,
                  .stops = request.sampling.stop,
                  .choices = request.n,
                  .prompt_tokens = static_cast<int>(sequence.prompt.size()),
                  .submitted_ns = parts_.clock->now_ns()});
  const uint64_t seed = request.sampling.seed ? *request.sampling.seed : system_seed();
  const bool chooses = sequence.max_tokens > 0;
  TRY(parts_.inbox->submit({.sequence = std::move(sequence),
                            .sampling = std::move(request.sampling),
                            .seed = seed,
                            .n = request.n,
                            .best_of = chooses ? samples_wanted(request) : request.n,
                            .beam = chooses ? request.beam : std::nullopt,
                            .prompt_logprobs = request.prompt_logprobs,
                            .stream = state}));
  return AcceptedRequest{.seq = seq, .stream = TokenStream(std::move(state))};
}

std::future<Result<PinId>> EngineDoor::order_pin(PrefixPin pin) {
  PinOrder order;
  order.tokens = std::move(pin.prompt_token_ids);
  order.scope = parts_.scopes->scope_of(pin.cache_salt);
  order.ttl_ms = pin.ttl_ms;
  return parts_.inbox->order_pin(std::move(order));
}

std::future<Result<PinId>> EngineDoor::order_unpin(PinId pin) {
  PinOrder order;
  order.unpin = pin;
  return parts_.inbox->order_pin(std::move(order));
}

}  // namespace quire
