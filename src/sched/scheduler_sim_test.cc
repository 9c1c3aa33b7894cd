// The scheduler over ToyModel with random clients and tiny pools: every request ends, and says what the model
// alone says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "sched/policy.h"
#include "sched/scheduler.h"
#include "sched/toy_model.h"

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int kVocab = 7;
constexpr TokenId kEos = 3;

struct World {
  std::vector<int> windows;
  int block_tokens;
  std::vector<int> block_counts;
  int step_tokens_max;
  int running_sequences_max;
  int priorities;  // distinct ones
};

class Simulation {
 public:
  Simulation(const World& world, uint64_t seed)
      : world_(world),
        options_(options_of(world)),
        scheduler_(options_),
        model_(options_.geometry, kVocab),
        rng_(seed) {}

  // Arrivals, then silence until all have ended.
  void run(int requests) {
    while (arrived_ < requests || !clients_.empty()) {
      while (arrived_ < requests && below(3) == 0) arrive();
      if (!clients_.empty() && below(25) == 0) cancel();
      step();
      if (testing::Test::HasFatalFailure()) return;
      ASSERT_LE(++steps_, step_bound()) << clients_.size() << " requests hang";
    }
    for (size_t g = 0; g < world_.block_counts.size(); ++g) {
      const BlockPool& pool = scheduler_.pool(static_cast<int>(g));
      ASSERT_EQ(pool.open_count() + pool.pinned_count(), 0);
    }
  }

  int finished() const { return finished_; }
  int preemptions() const { return preemptions_; }
  int hits() const { return hits_; }
  int copies() const { return copies_; }
  int refused() const { return refused_; }

 private:
  struct Client {
    SequenceRequest request;
    Tokens generated;
    Tokens prompt_answers;  // next token after each prompt token, as far as reported
    bool ignores_eos = false;
  };

  static SchedulerOptions options_of(const World& world) {
    KvGeometry geometry{.block_tokens = world.block_tokens, .type = KvType::kF32, .groups = {}};
    for (int window : world.windows)
      geometry.groups.push_back(
          {.layers = {}, .kv_heads = 1, .key_dim = 1, .value_dim = 1, .window = window});
    return {.geometry = geometry,
            .block_counts = world.block_counts,
            .context_length = 60,
            .step_tokens_max = world.step_tokens_max,
            .running_sequences_max = world.running_sequences_max};
  }

  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(rng_); }

  // In every step the oldest sequence advances, so all end within all the work there is, each time again for
  // every preemption.
  int64_t step_bound() const { return 200 + work_ * (kPreemptionsFree + 2) + 3 * abandoned_; }

  // Prompts come in families with common beginnings.
  Tokens random_prompt() {
    Tokens prompt(static_cast<size_t>(1 + below(40)), static_cast<TokenId>(below(2)));
    for (size_t i = 0; i < prompt.size(); ++i)
      if (below(12) == 0) prompt[i] = static_cast<TokenId>(below(kVocab));
    if (!history_.empty() && below(3) == 0) {  // the next turn of an old conversation
      prompt = history_[static_cast<size_t>(below(static_cast<int>(history_.size())))];
      for (int more = 1 + below(6); more > 0; --more) prompt.push_back(static_cast<TokenId>(below(kVocab)));
    }
    return prompt;
  }

  void arrive() {
    SequenceRequest request;
    request.seq = {++ids_};
    request.prompt = random_prompt();
    request.max_tokens = below(3) == 0 ? below(5) : below(45);
    request.priority = below(world_.priorities);
    request.prefill_chunk_tokens = below(3) == 0 ? 1 + below(9) : 0;
    request.prompt_logits = below(5) == 0 ? PromptLogits::kAll : PromptLogits::kLast;
    request.scope = {static_cast<uint64_t>(below(8) == 0)};
    ++arrived_;
    if (!scheduler_.check_admissible(request)) {
      ++refused_;
      return;
    }
    work_ += static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
    clients_[request.seq] = {
        .request = request, .generated = {}, .prompt_answers = {}, .ignores_eos = below(2) == 0};
    scheduler_.add(std::move(request));
  }

  void cancel() {
    auto client = clients_.begin();
    std::advance(client, below(static_cast<int>(clients_.size())));
    end(client->first);
  }

  void end(SeqId seq) {
    Client& client = clients_.at(seq);
    check_against_alone(client);
    const SequenceFigures figures = scheduler_.figures(seq);
    preemptions_ += figures.preemptions;
    hits_ += figures.cached_tokens > 0;
    EXPECT_LT(figures.cached_tokens, figures.prompt_tokens);
    // Without priorities and windows the bound is strict.
    if (world_.priorities == 1 && std::ranges::all_of(world_.windows, [](int w) { return w == 0; })) {
      ASSERT_LE(figures.preemptions, kPreemptionsFree);
    }
    Tokens all = client.request.prompt;
    all.insert(all.end(), client.generated.begin(), client.generated.end());
    ASSERT_TRUE(std::ranges::equal(scheduler_.tokens(seq), all));
    history_.push_back(std::move(all));
    scheduler_.finish(seq);
    clients_.erase(seq);
    ++finished_;
  }

  void check_against_alone(const Client& client) const {
    Tokens all = client.request.prompt;
    all.insert(all.end(), client.generated.begin(), client.generated.end());
    const Tokens alone = model_.next_tokens(all);
    for (size_t i = 0; i < client.generated.size(); ++i)
      ASSERT_EQ(client.generated[i], alone[client.request.prompt.size() - 1 + i]);
    for (size_t i = 0; i < client.prompt_answers.size(); ++i) ASSERT_EQ(client.prompt_answers[i], alone[i]);
    if (client.request.prompt_logits == PromptLogits::kAll && !client.generated.empty()) {
      ASSERT_EQ(client.prompt_answers.size(), client.request.prompt.size());
    }
  }

  void step() {
    const ScheduledStep step = scheduler_.plan_step();
    scheduler_.audit();
    check_plan(step);
    if (below(20) == 0) {
      ++abandoned_;
      scheduler_.abandon_step();
      scheduler_.audit();
      return;
    }
    for (const BlockCopy& copy : step.copies) model_.copy(copy);
    copies_ += static_cast<int>(step.copies.size());
    const std::vector<TokenId> next = model_.forward(step.plan);
    ASSERT_EQ(std::ssize(next), step.plan.logit_row_count());
    std::vector<SampledToken> sampled;
    std::vector<SeqId> ended;
    size_t row = 0;
    for (size_t i = 0; i < step.plan.sequences.size(); ++i) {
      const PlannedSequence& planned = step.plan.sequences[i];
      Client& client = clients_.at(planned.seq);
      for (size_t t = static_cast<size_t>(planned.logits_from); t < planned.tokens.size(); ++t, ++row)
        take_logits(client, planned.first_position + static_cast<Position>(t), next[row]);
      if (std::ranges::find(step.completing, static_cast<int>(i)) == step.completing.end()) continue;
      ASSERT_LT(planned.logits_from, static_cast<int>(planned.tokens.size()));
      const bool wants_token = client.request.max_tokens > 0;
      if (wants_token) {
        client.generated.push_back(next[row - 1]);
        sampled.push_back({planned.seq, next[row - 1]});
      }
      if (std::ssize(client.generated) == client.request.max_tokens ||
          (wants_token && next[row - 1] == kEos && !client.ignores_eos))
        ended.push_back(planned.seq);
    }
    scheduler_.commit_step(sampled);
    scheduler_.audit();
    for (SeqId seq : ended) end(seq);
  }

  void take_logits(Client& client, Position position, TokenId next) {
    const auto prompt = static_cast<Position>(client.request.prompt.size());
    if (client.request.prompt_logits != PromptLogits::kAll || position >= prompt) return;
    ASSERT_EQ(position, std::ssize(client.prompt_answers)) << "each prompt position once, in order";
    client.prompt_answers.push_back(next);
  }

  void check_plan(const ScheduledStep& step) {
    ASSERT_LE(step.plan.row_count(), options_.step_tokens_max);
    ASSERT_LE(scheduler_.running_count(), options_.running_sequences_max);
    ASSERT_EQ(step.empty(), clients_.empty());
    std::set<SeqId> once;
    std::set<std::pair<size_t, BlockId>> open;
    for (const PlannedSequence& planned : step.plan.sequences) {
      ASSERT_TRUE(once.insert(planned.seq).second);
      ASSERT_FALSE(planned.tokens.empty());
      const int chunk = clients_.at(planned.seq).request.prefill_chunk_tokens;
      if (chunk > 0) {
        ASSERT_LE(std::ssize(planned.tokens), chunk);
      }
      // Every block that is written in this step is open and has one writer.
      for (size_t g = 0; g < world_.windows.size(); ++g) {
        const int first = planned.first_position / world_.block_tokens;
        const int last =
            (planned.first_position + static_cast<int>(planned.tokens.size()) - 1) / world_.block_tokens;
        for (int block = first; block <= last; ++block) {
          const BlockId id = planned.block_table[g][static_cast<size_t>(block)];
          ASSERT_EQ(scheduler_.pool(static_cast<int>(g)).state(id), BlockState::kOpen);
          ASSERT_TRUE(open.insert({g, id}).second);
        }
      }
    }
  }

  const World world_;
  const SchedulerOptions options_;
  Scheduler scheduler_;
  ToyModel model_;
  std::mt19937_64 rng_;
  std::map<SeqId, Client> clients_;
  std::vector<Tokens> history_;
  uint64_t ids_ = 0;
  int arrived_ = 0, finished_ = 0, refused_ = 0, preemptions_ = 0, hits_ = 0, copies_ = 0;
  int64_t steps_ = 0, work_ = 0, abandoned_ = 0;
};

TEST(SchedulerSim, EveryRequestEndsAndSaysWhatTheModelAloneSays) {
  const World worlds[] = {
      {{0}, 4, {64}, 32, 16, 1},        // roomy
      {{0}, 4, {16}, 16, 8, 1},         // preempts
      {{0}, 2, {31}, 7, 7, 1},          // odd sizes
      {{0}, 2, {30}, 16, 12, 1},        // preempts often
      {{0}, 4, {17}, 1, 1, 1},          // one row a step
      {{0}, 8, {8}, 24, 8, 3},          // eight blocks, priorities
      {{0, 9}, 4, {18, 12}, 16, 8, 1},  // full and window
      {{6, 0}, 2, {9, 32}, 16, 8, 2},   // a tight window pool
      {{5, 12}, 4, {7, 9}, 12, 6, 1},   // windows only
      {{1, 0}, 4, {2, 16}, 16, 8, 1},   // a window of the token itself
      {{0, 0, 16, 3}, 4, {20, 18, 20, 6}, 20, 8, 2},
  };
  int preemptions = 0, hits = 0, copies = 0, refused = 0;
  for (size_t w = 0; w < std::size(worlds); ++w) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Simulation simulation(worlds[w], 100 * w + seed);
      simulation.run(60);
      if (testing::Test::HasFatalFailure()) FAIL() << "world " << w << ", seed " << seed;
      preemptions += simulation.preemptions();
      hits += simulation.hits();
      copies += simulation.copies();
      refused += simulation.refused();
    }
  }
  EXPECT_GT(preemptions, 50);
  EXPECT_GT(hits, 200);
  EXPECT_GT(copies, 100);
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace quire
