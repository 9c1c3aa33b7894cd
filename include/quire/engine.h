// The C++ API of the Quire engine: one process, one model, many requests.
//
//   auto engine = quire::Engine::open({.model_path = "model.gguf"});
//   auto stream = (*engine)->submit({.prompt_token_ids = ids, .sampling = {.max_tokens = 32}});
//   while (auto event = stream->next()) { std::cout << event->text; }
//
// A request may ask for several answers ("choices") to one prompt: n samples, the best n of more, or the
// best n of a beam search. They share one prefill, their K and V as far as they agree, one stream, one life.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/error.h"

namespace quire {

// How the next token is chosen. Filters apply in this order: logit bias, penalties, min_tokens, temperature,
// top_k, typical_p, top_p, min_p. Defaults switch everything off: temperature 0 is greedy.
struct SamplingParams {
  int max_tokens = 256;      // >= 0; 0 computes the prompt only
  int min_tokens = 0;        // end-of-sequence and stop tokens are impossible before that many tokens
  float temperature = 0.0f;  // [0, 100]; 0 = greedy (ties: lowest id)
  int top_k = 0;             // >= 0; 0 = all
  float top_p = 1.0f;        // (0, 1]; smallest set whose probability reaches it (Holtzman et al. 2020)
  float min_p = 0.0f;        // [0, 1]; relative to the most probable token (Nguyen et al. 2024)
  float typical_p = 1.0f;    // (0, 1]; locally typical sampling (Meister et al. 2023)
  float repetition_penalty = 1.0f;  // (0, 10]; over prompt and output (Keskar et al. 2019)
  float presence_penalty = 0.0f;    // [-2, 2]; once per token that the output holds
  float frequency_penalty = 0.0f;   // [-2, 2]; per occurrence in the output
  std::vector<std::pair<int32_t, float>> logit_bias{};  // token id, added to its logit, [-100, 100]
  std::optional<uint64_t> seed{};                       // absent: drawn from the system
  std::vector<std::string> stop{};  // at most 16, none empty; the text ends before the first that appears
  std::vector<int32_t> stop_token_ids{};
  bool ignore_eos = false;
  std::optional<int> logprobs{};  // 0…20: log-probability of each chosen token, and of that many best
};

// When a beam search ends before max_tokens; width finished sequences are kept, the best ones.
enum class EarlyStopping {
  kHeuristic,  // when no running beam, were it to end now, would be better than the worst of them
  kWhenFull,   // as soon as there are so many
  kNever,      // when no running beam can become better than the worst of them at any length
};

// Beam search: score = sum of log-probabilities / length^length_penalty. With groups > 1 it is diverse beam
// search (Vijayakumar et al. 2018): the groups, of width / groups beams each, choose one after the other in
// every step, and a token costs diversity_penalty per beam of an earlier group that has just taken it.
// Results are ordered by score; with several groups the best of each come first.
struct BeamSearchParams {
  int width = 4;                // 1…64: beams that are followed
  float length_penalty = 1.0f;  // [-10, 10]; > 0 favours long sequences
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
  int groups = 1;                  // divides width
  float diversity_penalty = 0.0f;  // [0, 100]
};

struct Request {
  std::vector<int32_t> prompt_token_ids{};  // at least one
  SamplingParams sampling{};
  // Choices to return, 1…128; an error of one ends all. Sample i has the seed `sampling.seed + i` (modulo
  // 2^64) and is, token for token, the one choice of a request with that seed.
  int n = 1;
  // n…128: that many are sampled and the n of highest mean log-probability per token returned, best first.
  // Then, and with beams, nothing is streamed before all have ended. 0 = n.
  int best_of = 0;
  // Instead of sampling; n <= width, temperature 0, no filter. logit_bias and penalties change the scores.
  std::optional<BeamSearchParams> beam{};
  int priority = 0;          // -100…100, higher goes first; nobody waits for ever
  std::string cache_salt{};  // at most 256 bytes; only requests of the same salt share cached prefixes
  // 0…100: for every prompt position the log-sum-exp and that many best next tokens (PromptPosition).
  std::optional<int> prompt_logprobs{};
  // At most this many prompt tokens in one step; 0 = the engine's choice. Results do not depend on it.
  int prefill_chunk_tokens = 0;
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;  // natural logarithm, of the unmodified distribution
};

// What the model says after one prompt token.
struct PromptPosition {
  double logsumexp = 0;                // of the logits
  std::optional<TokenLogprob> next{};  // the token that really follows; absent at the last position
  std::vector<TokenLogprob> top{};     // best first
};

enum class FinishReason { kNone, kStop, kLength, kCancelled, kError };
[[nodiscard]] const char* finish_reason_name(FinishReason reason);  // "stop", "length", …

// One step of an answer. Every choice ends with exactly one event whose finish is not kNone.
struct TokenEvent {
  int choice = 0;                     // 0…n-1
  std::optional<int32_t> token_id{};  // absent in events that only end the stream or carry prompt positions
  std::string text{};                 // whole code points that became certain; may be empty
  std::optional<TokenLogprob> logprob{};
  std::vector<TokenLogprob> top_logprobs{};
  std::vector<PromptPosition> prompt_positions{};  // of one prefill chunk, in order
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error{};  // with kError
  double at_ms = 0;              // since submit(), when the engine made it
};

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;      // prompt tokens whose K and V came from the cache
  int completion_tokens = 0;  // of all choices that are returned
};

// Times of one request, in milliseconds since submit().
struct RequestTimings {
  double queue_ms = 0;  // until its first step began
  double ttft_ms = 0;   // until its first token was computed
  double total_ms = 0;
  double prefill_tokens_per_s = 0;  // computed (not cached) prompt tokens per second of prefill
  double decode_tokens_per_s = 0;   // tokens after the first of each choice per second
};

// What a request holds, or held at its end. Blocks are counted over all layer groups.
struct RequestKv {
  int block_tokens = 0;
  int blocks_used = 0;       // one that several sequences share counts once
  int blocks_as_copies = 0;  // what they would be if no sequence shared with another
  // The same two when it held most. With n samples at most the prompt's blocks and, for each sample, those of
  // its own tokens and one more; without a prefix tree (kv_policy "paged"), a sample that was preempted comes
  // back with a copy of the prompt.
  int blocks_used_max = 0;
  int blocks_as_copies_max = 0;
  int tokens_used = 0;  // of its longest sequence
  int preemptions = 0;
};

// One choice; complete after its final event.
struct ChoiceSummary {
  FinishReason finish = FinishReason::kNone;
  int completion_tokens = 0;
  // Where choices were ranked (best_of > n, beams): what by, and the sum of the tokens' log-probabilities.
  std::optional<double> score{};
  std::optional<double> logprob_sum{};
};

struct RequestSummary {
  Usage usage;
  RequestTimings timings;
  RequestKv kv;
  std::vector<ChoiceSummary> choices{};  // [n]
};

// The answer to one request. One thread reads it, as slowly as it likes: what it has not read yet waits for
// it, at most (prompt + max_tokens + 1) * n events. Destroying it cancels what still runs.
class TokenStream {
 public:
  class State;
  explicit TokenStream(std::shared_ptr<State> state);
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;
  ~TokenStream();

  // Sleeps until there is an event; nullopt after the final one of every choice.
  std::optional<TokenEvent> next();
  // Never sleeps: nullopt also when there is no event yet.
  std::optional<TokenEvent> try_next();
  // Any thread. Every choice that has not come to its end by then ends with kCancelled; the blocks are back
  // within one step.
  void cancel();
  // For the reading thread; complete after the final event.
  [[nodiscard]] RequestSummary summary() const;

 private:
  std::shared_ptr<State> state_;
};

struct EngineOptions {
  std::string model_path{};     // a GGUF file (the first, when split)
  int threads = 0;              // 0 = every usable CPU
  std::string isa{};            // "" = the best of this machine; else a name of `quire info --isas`
  std::string kv_type = "f16";  // f32, f16, bf16, fp8, int8, int4
  bool exact = false;           // float32 activations and arithmetic throughout
  int context_length = 0;       // 0 = what the model was made for; bounds prompt + output of one request
  // Size of the block pools, which is reserved and not touched. 0 = one request of context_length, at most a
  // quarter of memory.
  uint64_t kv_bytes = 0;
  int inbox_requests_max = 256;  // that wait for their first step; beyond it submit() gives kOverloaded
  int step_tokens_max = 512;     // most tokens in one step
  // Gap between a stream's tokens that prefills beside it must keep to; 0 = none. [0, 60000]
  int itl_target_ms = 100;
  // How sequences get their KV memory; all but "radix" exist to measure what it is worth. "contiguous"
  // reserves the longest answer in one range and refuses n > 1; "paged" reuses nothing between requests.
  std::string kv_policy = "radix";
  int pinned_tokens_max =
      0;  // of pinned prefixes, rounded up to blocks; their blocks come on top of the pools
  // Folder where packed weights are kept, so that the next start only maps them; "" = they are packed in
  // memory at every start. It holds at most packed_cache_bytes; what was not used for longest goes first.
  std::string packed_cache{};
  uint64_t packed_cache_bytes = uint64_t{16} << 30;
};

// Use of one layer group's pool by running sequences. A slot is one token's place in a block.
struct PoolUse {
  int64_t blocks_held = 0;       // a shared block counts once
  int64_t blocks_as_copies = 0;  // what they would be if no sequence shared with another
  int64_t slots_held = 0;        // of the blocks held
  int64_t slots_written = 0;     // of them; the rest is internal waste
  // Free slots in ranges too short for the request that waits first: only kv_policy "contiguous" has any.
  int64_t slots_external_waste = 0;
};

struct PoolStats {  // blocks of one layer group
  int total = 0, free = 0, open = 0, pinned = 0, idle = 0;
  uint64_t block_bytes = 0;
  PoolUse now{};
  PoolUse step_sums{};  // `now` at the end of each step, summed: ratios of two are averages over steps
};

struct EngineStats {
  int running = 0;            // requests that had their first step
  int waiting = 0;            // requests that had not
  int sequences_running = 0;  // sequences that hold blocks: samples and beams count each
  int sequences_waiting = 0;  // that hold none, preempted ones included
  int pins = 0;               // pinned prefixes
  // Since the start.
  uint64_t steps = 0;
  uint64_t rows = 0;               // tokens computed
  uint64_t requests = 0;           // that had their first step
  uint64_t prompt_tokens = 0;      // of these requests
  uint64_t cached_tokens = 0;      // of their prompt tokens, those that the cache spared
  uint64_t completion_tokens = 0;  // sampled
  uint64_t sequence_steps = 0;     // sequences that held blocks, summed over the steps
  uint64_t preemptions = 0;        // of requests
  uint64_t evictions = 0;          // blocks that idle prefixes gave up for others
  uint64_t block_copies = 0;       // of hits that end inside a block, and of forks
  std::vector<PoolStats> pools;
};

// Facts about the loaded model.
struct ModelInfo {
  std::string architecture;
  std::string name;
  int vocab_size = 0;
  int context_length = 0;  // limit in force
  int layers = 0;
  uint64_t weight_bytes = 0;          // packed
  uint64_t decode_weight_bytes = 0;   // of them, what one decoded token reads
  std::string weights_from{};         // "memory", "new packed file", "packed file"
  std::string packed_cache_notice{};  // what was wrong with the packed cache, in a line; else empty
  uint64_t kv_bytes_per_token = 0;
  std::string kv_type;
  std::string isa{};
  int threads = 0;
  double load_ms = 0;  // time that open() took
};

// A prefix that shall stay in the cache.
struct PrefixPin {
  std::vector<int32_t> prompt_token_ids{};  // their whole blocks are pinned; at least one block
  std::string cache_salt{};                 // as in Request
  int64_t ttl_ms = 3'600'000;               // [1, 366 days]
};

class Tokenizer;
class ChatTemplate;

// Thread-safe. Owns the engine thread, the thread pool, the weights and the KV pools.
class Engine {
 public:
  // Errors name the option or the field of the file.
  static Result<std::unique_ptr<Engine>> open(EngineOptions options);
  virtual ~Engine() = default;

  // Errors: kInvalidArgument (field named), kResourceExhausted (it can never fit; with the numbers),
  // kOverloaded (the inbox is full).
  virtual Result<TokenStream> submit(Request request) = 0;

  // Computes the prefix as far as it is not cached, and keeps it until it is unpinned or its time is over.
  // Waits for that. Returns the pin's id. Errors: those of submit(); kResourceExhausted
  // ("pinned_blocks_max").
  virtual Result<uint64_t> pin_prefix(PrefixPin pin) = 0;
  // kNotFound when there is no such pin, for instance because its time was over.
  virtual Result<> unpin_prefix(uint64_t pin_id) = 0;

  [[nodiscard]] virtual EngineStats stats() const = 0;  // never waits for a step
  [[nodiscard]] virtual const ModelInfo& model() const = 0;
  [[nodiscard]] virtual const Tokenizer& tokenizer() const = 0;
  // nullptr: the file has none, or one that does not compile; chat_template_error() then says why.
  [[nodiscard]] virtual const ChatTemplate* chat_template() const = 0;
  [[nodiscard]] virtual const std::optional<Error>& chat_template_error() const = 0;
};

}  // namespace quire
