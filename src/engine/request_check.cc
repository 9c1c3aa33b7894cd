#include "engine/request_check.h"

#include <algorithm>
#include <cmath>

#include "engine/sampler.h"

namespace quire {
namespace {

constexpr int kPromptLogprobsMax = 100;
constexpr int kChoicesMax = 128;
constexpr int kBeamWidthMax = 64;
constexpr int kPriorityLimit = 100;
constexpr float kLengthPenaltyMax = 10;
constexpr float kDiversityPenaltyMax = 100;
constexpr size_t kCacheSaltBytesMax = 256;

Result<> check_int(const char* field, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::kInvalidArgument, field, "{} is {}, it must lie in [{}, {}]", field, value, low,
              high);
}

Result<> check_float(const char* field, float value, float low, float high) {
  if (value >= low && value <= high) return {};
  return fail(ErrorCode::kInvalidArgument, field, "{} is {}, it must lie in [{}, {}]", field, value, low,
              high);
}

Result<> check_prompt(const Request& request, int vocab_size) {
  if (request.prompt_token_ids.empty()) {
    return fail(ErrorCode::kInvalidArgument, "prompt_token_ids", "prompt_token_ids is empty");
  }
  for (size_t i = 0; i < request.prompt_token_ids.size(); ++i) {
    const int32_t id = request.prompt_token_ids[i];
    if (id >= 0 && id < vocab_size) continue;
    return fail(ErrorCode::kInvalidArgument, "prompt_token_ids",
                "prompt_token_ids[{}] is {}, the vocabulary has 0 to {}", i, id, vocab_size - 1);
  }
  if (request.prompt_logprobs)
    TRY(check_int("prompt_logprobs", *request.prompt_logprobs, 0, kPromptLogprobsMax));
  if (request.prefill_chunk_tokens < 0) {
    return fail(ErrorCode::kInvalidArgument, "prefill_chunk_tokens",
                "prefill_chunk_tokens is {}, it must be at least 0", request.prefill_chunk_tokens);
  }
  return {};
}

// Beam search ranks, it does not draw.
Result<> check_no_drawing(const SamplingParams& sampling) {
  auto refuse = [](const char* field, auto value, auto only) -> Result<> {
    return fail(ErrorCode::kInvalidArgument, field, "{} is {}, beam search takes {} only", field, value,
                only);
  };
  if (sampling.temperature != 0) return refuse("temperature", sampling.temperature, 0);
  if (sampling.top_k != 0) return refuse("top_k", sampling.top_k, 0);
  if (sampling.top_p != 1) return refuse("top_p", sampling.top_p, 1);
  if (sampling.min_p != 0) return refuse("min_p", sampling.min_p, 0);
  if (sampling.typical_p != 1) return refuse("typical_p", sampling.typical_p, 1);
  return {};
}

Result<> check_beam(const Request& request, int sequences_max) {
  const BeamSearchParams& beam = *request.beam;
  TRY(check_int("beam_width", beam.width, 1, std::min(kBeamWidthMax, sequences_max)));
  TRY(check_int("n", request.n, 1, beam.width));
  if (request.best_of != 0) {
    return fail(ErrorCode::kInvalidArgument, "best_of", "best_of is {}, with beam search it must be 0",
                request.best_of);
  }
  TRY(check_int("beam_groups", beam.groups, 1, beam.width));
  if (beam.width % beam.groups != 0) {
    return fail(ErrorCode::kInvalidArgument, "beam_groups",
                "beam_groups is {}, it must divide beam_width = {}", beam.groups, beam.width);
  }
  TRY(check_float("length_penalty", beam.length_penalty, -kLengthPenaltyMax, kLengthPenaltyMax));
  TRY(check_float("diversity_penalty", beam.diversity_penalty, 0, kDiversityPenaltyMax));
  if (beam.diversity_penalty > 0 && beam.groups == 1) {
    return fail(ErrorCode::kInvalidArgument, "diversity_penalty",
                "diversity_penalty is {}, with beam_groups = 1 it must be 0", beam.diversity_penalty);
  }
  return check_no_drawing(request.sampling);
}

}  // namespace

Result<> validate_request(const Request& request, const RequestLimits& limits) {
  TRY(validate_sampling(request.sampling, limits.vocab_size));
  TRY(check_prompt(request, limits.vocab_size));
  TRY(check_int("priority", request.priority, -kPriorityLimit, kPriorityLimit));
  if (request.cache_salt.size() > kCacheSaltBytesMax) {
    return fail(ErrorCode::kInvalidArgument, "cache_salt", "cache_salt has {} bytes, limit is {}",
                request.cache_salt.size(), kCacheSaltBytesMax);
  }
  if (request.beam) return check_beam(request, limits.sequences_max);
  const int most = std::min(kChoicesMax, limits.sequences_max);
  TRY(check_int("n", request.n, 1, most));
  if (request.best_of != 0) TRY(check_int("best_of", request.best_of, request.n, most));
  return {};
}

int samples_wanted(const Request& request) {
  return std::max(request.n, request.best_of);
}

int sequences_wanted(const Request& request) {
  // Without a token to choose they are all the same.
  if (request.sampling.max_tokens == 0) return 1;
  return request.beam ? request.beam->width : samples_wanted(request);
}

}  // namespace quire
