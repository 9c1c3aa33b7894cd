#include "engine/request_trace.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace quire {
namespace {

// Streams of the generator: blocks that requests may share, and prompts of their own.
constexpr uint64_t kSharedStream = 0, kOwnStream = 1;

int scaled(int tokens, double scale) {
  return std::max(1, static_cast<int>(std::llround(tokens * scale)));
}

}  // namespace

int64_t RequestTrace::edge(size_t index) const {
  return std::llround(static_cast<double>(index) * block_tokens);
}

RequestTrace cut_trace(RequestTrace trace, const TraceCut& cut) {
  CHECK(cut.scale > 0 && cut.scale <= 1 && cut.requests_max >= 0);
  const auto count = static_cast<size_t>(cut.requests_max);
  if (count > 0 && count < trace.requests.size()) trace.requests.resize(count);
  trace.block_tokens *= cut.scale;
  CHECK(trace.edge(1) >= 1);
  for (TracedRequest& request : trace.requests) {
    request.prompt_tokens = scaled(request.prompt_tokens, cut.scale);
    request.output_tokens = scaled(request.output_tokens, cut.scale);
  }
  return trace;
}

std::vector<TokenId> traced_prompt(const RequestTrace& trace, size_t request, int vocab_size) {
  const TracedRequest& traced = trace.requests[request];
  std::vector<TokenId> prompt;
  prompt.reserve(static_cast<size_t>(traced.prompt_tokens));
  const auto add = [&](uint64_t key, uint64_t place, uint64_t stream) {
    prompt.push_back(static_cast<TokenId>(uniform_at(key, place, stream) * vocab_size));
  };
  if (traced.block_ids.empty()) {
    for (int i = 0; i < traced.prompt_tokens; ++i) add(request, static_cast<uint64_t>(i), kOwnStream);
    return prompt;
  }
  for (size_t block = 0; block < traced.block_ids.size(); ++block) {
    const int64_t end = std::min<int64_t>(trace.edge(block + 1), traced.prompt_tokens);
    for (int64_t place = trace.edge(block); place < end; ++place)
      add(static_cast<uint64_t>(traced.block_ids[block]), static_cast<uint64_t>(place), kSharedStream);
  }
  CHECK(std::ssize(prompt) == traced.prompt_tokens);
  return prompt;
}

int64_t longest_request(const RequestTrace& trace) {
  int64_t longest = 0;
  for (const TracedRequest& request : trace.requests)
    longest = std::max(longest, int64_t{request.prompt_tokens} + request.output_tokens);
  return longest;
}

int asked_tokens(const TracedRequest& request, AskedTokens asked, int context_length) {
  if (asked == AskedTokens::kRecorded) return request.output_tokens;
  return std::max(request.output_tokens, context_length - request.prompt_tokens);
}

size_t InfiniteCache::PrefixHash::operator()(const Prefix& prefix) const {
  // Mixes as SplitMix64 does (Steele et al. 2014).
  uint64_t x =
      static_cast<uint64_t>(prefix.parent) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(prefix.block);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int64_t InfiniteCache::serve(size_t request) {
  const TracedRequest& traced = trace_.requests[request];
  int64_t served = 0, parent = -1;
  bool hits = true;
  for (size_t block = 0; block < traced.block_ids.size(); ++block) {
    const int64_t begin = trace_.edge(block);
    const int64_t tokens = std::min<int64_t>(trace_.edge(block + 1), traced.prompt_tokens) - begin;
    if (tokens <= 0) break;
    Seen& seen =
        seen_.try_emplace({parent, traced.block_ids[block]}, Seen{.index = std::ssize(seen_)}).first->second;
    if (hits) served += std::min(tokens, seen.tokens);
    // A block that was cut short cannot be passed.
    hits = hits && seen.tokens >= tokens && tokens == trace_.edge(block + 1) - begin;
    seen.tokens = std::max(seen.tokens, tokens);
    parent = seen.index;
  }
  return std::min<int64_t>(served, traced.prompt_tokens - 1);
}

}  // namespace quire
