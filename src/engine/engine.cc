#include "quire/engine.h"

#include <malloc.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "base/checked.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/cache_scopes.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"
#include "engine/inbox.h"
#include "engine/model_package.h"
#include "engine/request_check.h"
#include "engine/seq_ids.h"
#include "engine/token_stream.h"
#include "files/gguf_file.h"
#include "kv/kv_store.h"
#include "model/model.h"
#include "sched/scheduler.h"

namespace quire {
namespace {

constexpr int kRunningSequencesMax = 256;
// Requests that want logits of every prompt token go in chunks of at most about this much of them.
constexpr uint64_t kPromptLogitsBytes = 32 << 20;
constexpr int kPromptChunkMin = 16;

// The text side of a model file.
struct TextParts {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::optional<Error> chat_template_error;
};

Result<TextParts> load_text(const GgufFile& file) {
  TextParts parts;
  parts.tokenizer = TRY(tokenizer_of(file));
  auto chat_template = chat_template_of(file);
  if (chat_template) {
    parts.chat_template = std::move(*chat_template);
  } else {
    parts.chat_template_error = std::move(chat_template.error());
  }
  return parts;
}

// Runs load_text() beside the thread that made it.
class TextLoader {
 public:
  explicit TextLoader(const GgufFile& file) : thread_([this, &file] { result_ = load_text(file); }) {}
  ~TextLoader() {
    if (thread_.joinable()) thread_.join();
  }
  TextLoader(const TextLoader&) = delete;
  TextLoader& operator=(const TextLoader&) = delete;
  Result<TextParts> take() {
    thread_.join();
    return std::move(result_);
  }

 private:
  Result<TextParts> result_;
  std::thread thread_;
};

uint64_t system_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Everything that open() makes, in the order in which it may be torn down from the end.
struct Parts {
  ModelInfo info;
  TextParts text;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvStore> kv;
  std::unique_ptr<Scheduler> scheduler;
  std::shared_ptr<Inbox> inbox;
  int sequences_max = 1;  // that may run at once
};

// Owns the parts and the engine thread. Invariant: the thread runs from the constructor to the destructor.
class LoadedEngine final : public Engine {
 public:
  explicit LoadedEngine(Parts parts)
      : parts_(std::move(parts)),
        loop_({.pool = parts_.pool.get(),
               .model = parts_.model.get(),
               .kv = parts_.kv.get(),
               .scheduler = parts_.scheduler.get(),
               .inbox = parts_.inbox.get(),
               .clock = &clock_,
               .tokenizer = parts_.text.tokenizer.get(),
               .seq_ids = &seq_ids_,
               .end_tokens = end_tokens()}),
        thread_([this] { loop_.run(); }) {}

  ~LoadedEngine() override {
    parts_.inbox->close();
    thread_.join();
  }

  Result<TokenStream> submit(Request request) override;
  Result<uint64_t> pin_prefix(PrefixPin pin) override;
  Result<> unpin_prefix(uint64_t pin_id) override;
  [[nodiscard]] EngineStats stats() const override { return loop_.stats(); }
  [[nodiscard]] const ModelInfo& model() const override { return parts_.info; }
  [[nodiscard]] const Tokenizer& tokenizer() const override { return *parts_.text.tokenizer; }
  [[nodiscard]] const ChatTemplate* chat_template() const override { return parts_.text.chat_template.get(); }
  [[nodiscard]] const std::optional<Error>& chat_template_error() const override {
    return parts_.text.chat_template_error;
  }

 private:
  [[nodiscard]] std::vector<TokenId> end_tokens() const;
  [[nodiscard]] int prefill_chunk(const Request& request) const;

  const Parts parts_;
  const MonotonicClock clock_;
  SeqIds seq_ids_;
  CacheScopes scopes_;
  EngineLoop loop_;
  std::thread thread_;
};

// Those that the model can yield.
std::vector<TokenId> LoadedEngine::end_tokens() const {
  std::vector<TokenId> ends;
  for (TokenId id : parts_.text.tokenizer->end_tokens()) {
    if (id >= 0 && id < parts_.info.vocab_size) ends.push_back(id);
  }
  return ends;
}

int LoadedEngine::prefill_chunk(const Request& request) const {
  if (!request.prompt_logprobs) return request.prefill_chunk_tokens;
  const auto row_bytes = static_cast<uint64_t>(parts_.info.vocab_size) * sizeof(float);
  const int most = std::max(kPromptChunkMin, static_cast<int>(kPromptLogitsBytes / row_bytes));
  return request.prefill_chunk_tokens == 0 ? most : std::min(most, request.prefill_chunk_tokens);
}

Result<TokenStream> LoadedEngine::submit(Request request) {
  TRY(validate_request(request,
                       {.vocab_size = parts_.info.vocab_size, .sequences_max = parts_.sequences_max}));
  SequenceRequest sequence;
  sequence.max_tokens = request.sampling.max_tokens;
  sequence.priority = request.priority;
  sequence.prefill_chunk_tokens = prefill_chunk(request);
  sequence.prompt_logits = request.prompt_logprobs ? PromptLogits::kAll : PromptLogits::kLast;
  sequence.sequences = sequences_wanted(request);
  sequence.pace = request.beam ? GroupPace::kTogether : GroupPace::kFree;
  sequence.prompt = std::move(request.prompt_token_ids);
  TRY(parts_.scheduler->check_admissible(sequence));
  sequence.scope = scopes_.scope_of(request.cache_salt);
  sequence.seq = seq_ids_.next();
  auto state = std::make_shared<TokenStream::State>(
      StreamStart{.seq = sequence.seq,
                  .inbox = parts_.inbox,
                  .tokenizer = parts_.text.tokenizer,
                  .stops = request.sampling.stop,
                  .choices = request.n,
                  .prompt_tokens = static_cast<int>(sequence.prompt.size()),
                  .submitted_ns = clock_.now_ns()});
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
  return TokenStream(std::move(state));
}

Result<uint64_t> LoadedEngine::pin_prefix(PrefixPin pin) {
  Request request{.prompt_token_ids = pin.prompt_token_ids, .cache_salt = pin.cache_salt};
  request.sampling.max_tokens = 0;
  TokenStream stream = TRY(submit(std::move(request)));
  while (auto event = stream.next()) {
    if (event->error) return std::unexpected(std::move(*event->error));
  }
  PinOrder order;
  order.tokens = std::move(pin.prompt_token_ids);
  order.scope = scopes_.scope_of(pin.cache_salt);
  order.ttl_ms = pin.ttl_ms;
  return TRY(parts_.inbox->order_pin(std::move(order)).get())
  .value;
}

Result<> LoadedEngine::unpin_prefix(uint64_t pin_id) {
  PinOrder order;
  order.unpin = PinId{pin_id};
  TRY(parts_.inbox->order_pin(std::move(order)).get());
  return {};
}

int choose_threads(int wanted) {
  constexpr size_t kMost = 256;
  return wanted > 0 ? wanted : static_cast<int>(std::min(kMost, usable_cpus().size()));
}

// Geometry, pools and scheduler of a loaded model.
Result<> plan_kv(const EngineOptions& options, Parts& parts) {
  const ModelSpec& spec = parts.model->spec();
  const KvGeometry geometry = spec.kv_geometry(*kv_type_from_name(options.kv_type));
  std::vector<int> counts = TRY(plan_pools(geometry, {.context_length = parts.info.context_length,
                                                      .step_tokens_max = options.step_tokens_max,
                                                      .kv_bytes = options.kv_bytes,
                                                      .bytes_max = usable_memory_bytes() / 4}));
  const int pinned_blocks = ceil_div(options.pinned_tokens_max, geometry.block_tokens);
  for (int& count : counts) count += pinned_blocks;
  parts.kv = TRY(KvStore::create(geometry, counts));
  parts.model->prepare_for(*parts.kv);
  parts.sequences_max = std::min(kRunningSequencesMax, options.step_tokens_max);
  const SchedulerOptions scheduling{.geometry = geometry,
                                    .block_counts = counts,
                                    .context_length = parts.info.context_length,
                                    .step_tokens_max = options.step_tokens_max,
                                    .running_sequences_max = parts.sequences_max,
                                    .itl_target_ms = options.itl_target_ms,
                                    .kv_policy = *kv_policy_from_name(options.kv_policy),
                                    .pinned_blocks_max = pinned_blocks};
  TRY(Scheduler::check_options(scheduling));
  parts.scheduler = std::make_unique<Scheduler>(scheduling);
  parts.info.kv_bytes_per_token = kv_token_bytes(geometry);
  parts.info.kv_type = options.kv_type;
  parts.info.kv_key_type = kv_type_name(geometry.key_type());
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(EngineOptions options) {
  const MonotonicClock clock;
  const int64_t begin_ns = clock.now_ns();
  TRY(validate_options(options));
  Parts parts;
  const KernelTable* kernels = TRY(choose_kernels(options.isa));
  const GgufFile file = TRY(GgufFile::open(options.model_path));
  const ModelSpec spec = TRY(read_model_spec(file));
  parts.info.context_length = TRY(choose_context_length(options.context_length, spec));
  TextLoader text(file);
  parts.pool = std::make_unique<ThreadPool>(choose_threads(options.threads));
  parts.model = TRY(
      Model::load(file, {.kernels = kernels,
                         .pool = parts.pool.get(),
                         .arithmetic = options.exact ? Arithmetic::kFloat32 : Arithmetic::kInt8Activations,
                         .step_tokens_max = options.step_tokens_max,
                         .step_logits_max = options.step_tokens_max}));
  TRY(plan_kv(options, parts));
  parts.text = TRY(text.take());
  parts.inbox = std::make_shared<Inbox>(options.inbox_requests_max);
  parts.info.architecture = spec.architecture;
  parts.info.name = spec.name;
  parts.info.vocab_size = spec.vocab_size;
  parts.info.layers = static_cast<int>(spec.layers.size());
  parts.info.weight_bytes = parts.model->weight_bytes();
  parts.info.decode_weight_bytes = parts.model->decode_weight_bytes();
  parts.info.isa = kernels->name;
  parts.info.threads = parts.pool->size();
  // What building the tables of the vocabulary left behind goes back to the system.
  malloc_trim(0);
  parts.info.load_ms = static_cast<double>(clock.now_ns() - begin_ns) * 1e-6;
  return std::make_unique<LoadedEngine>(std::move(parts));
}

}  // namespace quire
