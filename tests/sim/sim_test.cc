#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <string>

#include "sched/policy.h"
#include "tests/sim/simulation.h"

namespace quire::sim {
namespace {

std::string replay_of_this_run;

// Our own checks abort: then the command must be known, too.
void print_replay(int) {
  const std::string line = "replay: " + replay_of_this_run + "\n";
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

struct Trial {
  std::optional<size_t> world{};  // of the named ones; else one by the seed
  uint64_t seed = 0;
  RunLength length{.steps_max = std::numeric_limits<int64_t>::max()};
  int threads = 1;
};

Totals simulate(const Trial& run) {
  replay_of_this_run = fmt::format("build/release/bin/sim --seed {} --requests {} --steps {}", run.seed,
                                   run.length.requests, run.length.steps_max);
  if (run.world) replay_of_this_run += fmt::format(" --world {}", *run.world);
  std::signal(SIGABRT, print_replay);
  ThreadPool pool(run.threads);
  Simulation simulation(run.world ? named_worlds()[*run.world] : random_world(run.seed), run.seed, pool);
  const auto violation = simulation.run(run.length);
  if (violation) ADD_FAILURE() << *violation << "\nreplay: " << replay_of_this_run;
  return simulation.totals();
}

TEST(Simulation, TenThousandRequestsInWorldsThatWereMadeToHurt) {
  Totals totals;
  for (size_t world = 0; world < named_worlds().size(); ++world) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      Trial run{.world = world, .seed = seed};
      run.length.requests = 120;
      totals += simulate(run);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GE(totals.requests, 10'000);
  EXPECT_GT(totals.refused, 100);
  EXPECT_GT(totals.preemptions, 150);
  EXPECT_GT(totals.evictions, 2000);
  EXPECT_GT(totals.hits, 2000);
  EXPECT_GT(totals.copies, 2000);
  EXPECT_GT(totals.forks, 2000);
  EXPECT_GT(totals.pins, 100);
  EXPECT_GT(totals.errors, 20);
  EXPECT_GT(totals.read_late, 2000);
  for (int64_t left : totals.left_at) EXPECT_GT(left, 20);  // at each stage
}

// Every tenth engine is stopped in the midst of its work.
TEST(Simulation, TenThousandRequestsInRandomWorlds) {
  Totals totals;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Trial run{.seed = seed};
    run.length.requests = 100;
    if (seed % 10 == 0) run.length.steps_max = static_cast<int64_t>(seed);
    totals += simulate(run);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(totals.requests, 9'000);
  EXPECT_GT(totals.forks, 500);
  EXPECT_GT(totals.stopped, 20);
}

// Among priorities somebody waits for more than kAgeingSteps.
TEST(Simulation, ALongQueueAges) {
  Trial run{.world = 5, .seed = 1};
  run.length.requests = 1500;
  EXPECT_GT(simulate(run).steps, 3 * kAgeingSteps);
}

TEST(Simulation, IsTheSameAgainAndWithMoreThreads) {
  Trial run{.seed = 7};
  run.length.requests = 200;
  const Totals once = simulate(run);
  EXPECT_EQ(once, simulate(run));
  run.threads = 3;
  EXPECT_EQ(once, simulate(run));
}

}  // namespace
}  // namespace quire::sim
