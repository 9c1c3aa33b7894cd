// Cancelling in every state a request can be in, step by step: the loop runs on the test's own thread, and
// its clock looks at the scheduler whenever the loop asks for the time.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine_door.h"
#include "engine/engine_loop.h"
#include "engine/model_package.h"
#include "engine/tiny_engine.h"

namespace quire {
namespace {

class WatchingClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override {
    if (watch) watch();
    return real_.now_ns() + ahead_ns;
  }
  std::function<void()> watch;
  int64_t ahead_ns = 0;

 private:
  const MonotonicClock real_;
};

// A loop over a tiny model, every part in the test's hands.
class LoopWorld {
 public:
  struct Options {
    int block_rows = 100;  // of 32 tokens
    int running_sequences_max = 64;
    int step_tokens_max = 64;
    int pinned_blocks_max = 0;
  };

  static int blocks(const Options& options) { return options.block_rows * 32 / kDefaultBlockTokens; }

  explicit LoopWorld(const Options& options)
      : file_(GgufFile::open(tiny_model_path(TinyKind::kFull)).value()),
        model_(Model::load(file_, {.kernels = find_kernels(""),
                                   .pool = &pool_,
                                   .arithmetic = Arithmetic::kFloat32,
                                   .step_tokens_max = options.step_tokens_max,
                                   .step_logits_max = options.step_tokens_max})
                   .value()),
        geometry_(model_->spec().kv_geometry(KvType::kF32)),
        kv_(KvStore::create(geometry_, {blocks(options)}).value()),
        scheduler_({.geometry = geometry_,
                    .block_counts = {blocks(options)},
                    .context_length = kTinyContext,
                    .step_tokens_max = options.step_tokens_max,
                    .running_sequences_max = options.running_sequences_max,
                    .pinned_blocks_max = options.pinned_blocks_max}),
        tokenizer_(tokenizer_of(file_).value()),
        door_({.scheduler = &scheduler_,
               .inbox = inbox_,
               .tokenizer = tokenizer_,
               .clock = &clock_,
               .seq_ids = &ids_,
               .scopes = &scopes_,
               .vocab_size = kTinyVocab,
               .sequences_max = options.running_sequences_max}),
        loop_({.pool = &pool_,
               .forward = [this](const StepPlan& plan, KvStore& kv) { return model_->forward(plan, kv); },
               .kv = kv_.get(),
               .scheduler = &scheduler_,
               .inbox = inbox_.get(),
               .clock = &clock_,
               .tokenizer = tokenizer_.get(),
               .seq_ids = &ids_,
               .end_tokens = {kTinyEnd}}) {}

  // The number of the request, from 0.
  size_t submit(const Request& request) {
    auto accepted = door_.submit(request);
    EXPECT_TRUE(accepted.has_value());
    seqs_.push_back(accepted->seq);
    streams_.push_back(std::move(accepted->stream));
    return seqs_.size() - 1;
  }

  // Runs all requests to their ends, but cancels `number` as soon as `is_time` says so. Returns the steps
  // that were begun between that moment and the one when nothing of it was left.
  int cancel_when(size_t number,
                  const std::function<bool(const SequenceFigures&, const RequestFigures&)>& is_time) {
    const SeqId seq = seqs_[number];
    int64_t cancelled_at = -1, gone_at = -1;
    clock_.watch = [&] {
      const auto steps = static_cast<int64_t>(loop_.stats().steps);
      if (gone_at < 0 && cancelled_at >= 0 && !scheduler_.contains(seq)) gone_at = steps;
      if (cancelled_at < 0 && scheduler_.contains(seq) &&
          is_time(scheduler_.figures(seq), scheduler_.request_figures(seq))) {
        streams_[number].cancel();
        cancelled_at = steps;
      }
      close_when_idle();
    };
    loop_.run();
    EXPECT_GE(cancelled_at, 0) << "it never came to that state";
    EXPECT_GE(gone_at, 0);
    return static_cast<int>(gone_at - cancelled_at);
  }

  // The events of a request, read when all is over.
  std::vector<TokenEvent> events(size_t number) {
    std::vector<TokenEvent> events;
    while (auto event = streams_[number].next()) events.push_back(std::move(*event));
    return events;
  }

  [[nodiscard]] Inbox& inbox() { return *inbox_; }
  [[nodiscard]] EngineDoor& door() { return door_; }
  void beat() { loop_.beat(); }
  void wait_ms(int64_t ms) { clock_.ahead_ns += ms * 1'000'000; }
  [[nodiscard]] Scheduler& scheduler() { return scheduler_; }
  [[nodiscard]] SeqId seq(size_t number) const { return seqs_[number]; }
  [[nodiscard]] EngineStats stats() const { return loop_.stats(); }
  void run(const std::function<void()>& watch) {
    clock_.watch = [this, watch] {
      watch();
      close_when_idle();
    };
    loop_.run();
  }

 private:
  // At the last event of the last request: nothing runs, nothing waits.
  void close_when_idle() {
    const EngineStats stats = loop_.stats();
    if (stats.steps > 0 && stats.running + stats.waiting == 0) inbox_->close();
  }

  ThreadPool pool_{1};
  const GgufFile file_;
  const std::unique_ptr<Model> model_;
  const KvGeometry geometry_;
  const std::unique_ptr<KvStore> kv_;
  Scheduler scheduler_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>(1000);
  WatchingClock clock_;
  SeqIds ids_;
  CacheScopes scopes_;
  EngineDoor door_;
  EngineLoop loop_;
  std::vector<SeqId> seqs_;
  std::vector<TokenStream> streams_;
};

Request growing(uint32_t seed, int prompt_tokens, int max_tokens) {
  return {
      .prompt_token_ids = random_prompt(prompt_tokens, seed),
      .sampling = {
          .max_tokens = max_tokens, .logit_bias = {{kTinyBroken, -100.0f}}, .seed = 1, .ignore_eos = true}};
}

// It is over within one step, with one final event a choice; the neighbours never notice.
void expect_cancelled(LoopWorld& world, size_t number, int steps, int choices) {
  EXPECT_LE(steps, 1);
  int ends = 0;
  for (const TokenEvent& event : world.events(number)) {
    if (event.finish == FinishReason::kNone) continue;
    EXPECT_EQ(event.finish, FinishReason::kCancelled);
    ++ends;
  }
  EXPECT_EQ(ends, choices);
}

void expect_answered(LoopWorld& world, size_t number, const Request& request) {
  std::vector<int32_t> ids;
  for (const TokenEvent& event : world.events(number))
    if (event.token_id) ids.push_back(*event.token_id);
  EXPECT_EQ(ids, ask(*open_tiny(), request).ids);
}

TEST(EngineCancel, WhileItWaitsInTheQueue) {
  LoopWorld world({.running_sequences_max = 1});
  const Request first = growing(1, 40, 20);
  world.submit(first);
  const size_t target = world.submit(growing(2, 40, 20));
  const int steps = world.cancel_when(target, [](const SequenceFigures& figures, const RequestFigures&) {
    return figures.state == SequenceState::kWaiting;
  });
  expect_cancelled(world, target, steps, 1);
  expect_answered(world, 0, first);
}

TEST(EngineCancel, WhileItPrefills) {
  LoopWorld world({});
  const Request first = growing(1, 40, 20);
  world.submit(first);
  Request slow = growing(2, 200, 5);
  slow.prefill_chunk_tokens = 16;
  const size_t target = world.submit(slow);
  const int steps = world.cancel_when(target, [](const SequenceFigures& figures, const RequestFigures&) {
    return figures.state == SequenceState::kPrefilling && figures.computed_tokens >= 64;
  });
  expect_cancelled(world, target, steps, 1);
  expect_answered(world, 0, first);
}

TEST(EngineCancel, WhileItDecodes) {
  LoopWorld world({});
  const Request first = growing(1, 40, 30);
  world.submit(first);
  const size_t target = world.submit(growing(2, 40, 300));
  const int steps = world.cancel_when(target, [](const SequenceFigures& figures, const RequestFigures&) {
    return figures.state == SequenceState::kDecoding && figures.generated_tokens == 7;
  });
  expect_cancelled(world, target, steps, 1);
  expect_answered(world, 0, first);
}

TEST(EngineCancel, WhileItIsPreempted) {
  LoopWorld world({.block_rows = 9});
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 3; ++i) {
    requests.push_back(growing(i, 8, 150));
    world.submit(requests.back());
  }
  const int steps = world.cancel_when(2, [](const SequenceFigures& figures, const RequestFigures&) {
    return figures.state == SequenceState::kPreempted;
  });
  expect_cancelled(world, 2, steps, 1);
  for (size_t i = 0; i < 2; ++i) expect_answered(world, i, requests[i]);
}

TEST(EngineCancel, WhileItIsForked) {
  for (const bool beams : {false, true}) {
    LoopWorld world({});
    const Request first = growing(1, 40, 30);
    world.submit(first);
    Request many = growing(2, 40, 200);
    many.n = 3;
    if (beams) {
      many.beam = BeamSearchParams{.width = 3};
    } else {
      many.sampling.temperature = 1;
    }
    const size_t target = world.submit(many);
    const int steps =
        world.cancel_when(target, [&](const SequenceFigures& figures, const RequestFigures& request) {
          // A beam's own sequence may have no successor later on.
          return request.sequences == 3 && figures.generated_tokens >= (beams ? 1 : 5);
        });
    expect_cancelled(world, target, steps, 3);
    expect_answered(world, 0, first);
  }
}

TEST(EngineCancel, OneChoiceAlone) {
  LoopWorld world({});
  Request many = growing(2, 40, 60);
  many.n = 3;
  many.sampling.temperature = 1;
  const size_t number = world.submit(many);
  bool is_sent = false;
  world.run([&] {
    const SeqId seq = world.seq(number);
    if (is_sent || !world.scheduler().contains(seq) || world.scheduler().figures(seq).generated_tokens < 9)
      return;
    is_sent = true;
    world.inbox().cancel({.request = seq, .choice = 1});
  });
  std::vector<int> tokens(3);
  std::vector<FinishReason> ends(3);
  for (const TokenEvent& event : world.events(number)) {
    tokens[static_cast<size_t>(event.choice)] += event.token_id ? 1 : 0;
    if (event.finish != FinishReason::kNone) ends[static_cast<size_t>(event.choice)] = event.finish;
  }
  EXPECT_EQ(tokens[0], 60);
  EXPECT_EQ(tokens[2], 60);
  EXPECT_LT(tokens[1], 12);
  EXPECT_EQ(ends[1], FinishReason::kCancelled);
}

// Nobody reads before all has ended: the events wait, at most prompt + max_tokens + 1 for each choice.
TEST(EngineCancel, ASlowReaderHoldsNobodyUp) {
  LoopWorld world({});
  Request many = growing(2, 33, 50);
  many.n = 4;
  many.sampling.temperature = 1;
  const size_t number = world.submit(many);
  world.run([] {});
  const auto events = world.events(number);
  EXPECT_EQ(events.size(), 4u * 50);
  EXPECT_LE(events.size(), 4u * (33 + 50 + 1));
  EXPECT_EQ(world.stats().pools[0].open + world.stats().pools[0].pinned, 0);
}

// An engine that nobody asks anything has no other occasion to say so.
TEST(EngineFigures, ForgetAPinWhoseTimeIsOver) {
  LoopWorld world({.pinned_blocks_max = 40});
  const std::vector<int32_t> prompt = random_prompt(64, 1);
  world.submit({.prompt_token_ids = prompt, .sampling = {.max_tokens = 0}});
  while (world.stats().steps == 0 || world.stats().running > 0) world.beat();
  auto answer = world.door().order_pin({.prompt_token_ids = prompt, .ttl_ms = 1'000'000});
  world.beat();
  ASSERT_TRUE(answer.get().has_value());
  EXPECT_EQ(world.stats().pins, 1);
  EXPECT_EQ(world.stats().pools[0].pinned, 64 / kDefaultBlockTokens);
  world.wait_ms(2'000'000);
  world.beat();
  EXPECT_EQ(world.stats().pins, 0);
  EXPECT_EQ(world.stats().pools[0].pinned, 0);
}

}  // namespace
}  // namespace quire
