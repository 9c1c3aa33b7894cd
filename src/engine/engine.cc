#include "quire/engine.h"

#include <malloc.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/cache_scopes.h"
#include "engine/engine_door.h"
#include "engine/engine_loop.h"
#include "engine/engine_plan.h"
#include "engine/inbox.h"
#include "engine/model_package.h"
#include "engine/seq_ids.h"
#include "files/gguf_file.h"
#include "kv/kv_store.h"
#include "model/model.h"
#include "sched/scheduler.h"

namespace quire {
namespace {

constexpr int kRunningSequencesMax = 256;

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
        door_({.scheduler = parts_.scheduler.get(),
               .inbox = parts_.inbox,
               .tokenizer = parts_.text.tokenizer,
               .clock = &clock_,
               .seq_ids = &seq_ids_,
               .scopes = &scopes_,
               .vocab_size = parts_.info.vocab_size,
               .sequences_max = parts_.sequences_max}),
        loop_(
            {.pool = parts_.pool.get(),
             .forward = [this](const StepPlan& plan, KvStore& kv) { return parts_.model->forward(plan, kv); },
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

  const Parts parts_;
  const MonotonicClock clock_;
  SeqIds seq_ids_;
  CacheScopes scopes_;
  EngineDoor door_;
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

Result<TokenStream> LoadedEngine::submit(Request request) {
  return TRY(door_.submit(std::move(request)))
  .stream;
}

Result<uint64_t> LoadedEngine::pin_prefix(PrefixPin pin) {
  Request request{.prompt_token_ids = pin.prompt_token_ids, .cache_salt = pin.cache_salt};
  request.sampling.max_tokens = 0;
  TokenStream stream = TRY(submit(std::move(request)));
  while (auto event = stream.next()) {
    if (event->error) return std::unexpected(std::move(*event->error));
  }
  return TRY(door_.order_pin(std::move(pin)).get())
  .value;
}

Result<> LoadedEngine::unpin_prefix(uint64_t pin_id) {
  TRY(door_.order_unpin(PinId{pin_id}).get());
  return {};
}

const char* origin_name(WeightOrigin origin) {
  switch (origin) {
    case WeightOrigin::kMemory:
      return "memory";
    case WeightOrigin::kNewFile:
      return "new packed file";
    case WeightOrigin::kFile:
      return "packed file";
  }
  UNREACHABLE();
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
  parts.model = TRY(Model::load(
      file, {.kernels = kernels,
             .pool = parts.pool.get(),
             .arithmetic = options.exact ? Arithmetic::kFloat32 : Arithmetic::kInt8Activations,
             .step_tokens_max = options.step_tokens_max,
             .step_logits_max = options.step_tokens_max,
             .packed_cache = {.folder = options.packed_cache, .bytes_max = options.packed_cache_bytes}}));
  TRY(plan_kv(options, parts));
  parts.text = TRY(text.take());
  parts.inbox = std::make_shared<Inbox>(options.inbox_requests_max);
  parts.info.architecture = spec.architecture;
  parts.info.name = spec.name;
  parts.info.vocab_size = spec.vocab_size;
  parts.info.layers = static_cast<int>(spec.layers.size());
  parts.info.weight_bytes = parts.model->weight_bytes();
  parts.info.decode_weight_bytes = parts.model->decode_weight_bytes();
  parts.info.weights_from = origin_name(parts.model->weight_origin());
  parts.info.packed_cache_notice = parts.model->weight_notice();
  parts.info.isa = kernels->name;
  parts.info.threads = parts.pool->size();
  // What building the tables of the vocabulary left behind goes back to the system.
  malloc_trim(0);
  parts.info.load_ms = static_cast<double>(clock.now_ns() - begin_ns) * 1e-6;
  return std::make_unique<LoadedEngine>(std::move(parts));
}

}  // namespace quire
