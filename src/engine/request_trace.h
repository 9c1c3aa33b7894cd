// A recorded load: when requests came and how long they were, without their text.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace quire {

// One request. Requests whose `block_ids` begin alike have prompts that begin alike: id i stands for the
// tokens between the edges i and i + 1 of the trace and all before them. Without ids the prompt is like no
// other.
struct TracedRequest {
  double arrival_ms = 0;  // since the first
  int prompt_tokens = 0;  // >= 1
  int output_tokens = 0;  // >= 1
  std::vector<int64_t> block_ids{};
};

// Requests in order of arrival. Invariant: edge(block_ids.size()) >= prompt_tokens of each request with ids.
struct RequestTrace {
  std::vector<TracedRequest> requests;
  double block_tokens = 512;  // that a block id stands for

  // First prompt position of block `index`.
  [[nodiscard]] int64_t edge(size_t index) const;
};

// Lengths times `scale` (0 < scale <= 1), rounded, none below 1 token; what was shared stays shared.
// `requests_max` first requests; 0 = all.
struct TraceCut {
  double scale = 1;
  int requests_max = 0;
};
[[nodiscard]] RequestTrace cut_trace(RequestTrace trace, const TraceCut& cut);

// The prompt of a request: random tokens that two requests have in common as far as their block ids agree.
[[nodiscard]] std::vector<TokenId> traced_prompt(const RequestTrace& trace, size_t request, int vocab_size);

// Prompt and output tokens of the longest request; 0 without requests.
[[nodiscard]] int64_t longest_request(const RequestTrace& trace);

// How many tokens requests ask for (max_tokens). They end at the recorded length in either case.
enum class AskedTokens : uint8_t {
  kRecorded,  // just what they will get
  kContext,   // all that the context allows, as who does not know an answer's length must
};

[[nodiscard]] int asked_tokens(const TracedRequest& request, AskedTokens asked, int context_length);

// A cache that never forgets and into which every prompt goes at once when it arrives: the most that any
// cache can serve. It holds the set of block prefixes that came by, each with how many of its tokens did.
class InfiniteCache {
 public:
  explicit InfiniteCache(const RequestTrace& trace) : trace_(trace) {}

  // How many prompt tokens of the request it would serve (at least one always is computed); then keeps them.
  // Requests in order of arrival, each once.
  int64_t serve(size_t request);

 private:
  struct Prefix {
    int64_t parent;  // index of the prefix without its last block; -1 = none
    int64_t block;
    bool operator==(const Prefix&) const = default;
  };
  struct PrefixHash {
    size_t operator()(const Prefix& prefix) const;
  };
  struct Seen {
    int64_t index = 0;
    int64_t tokens = 0;  // of the last block
  };

  const RequestTrace& trace_;
  std::unordered_map<Prefix, Seen, PrefixHash> seen_;
};

}  // namespace quire
