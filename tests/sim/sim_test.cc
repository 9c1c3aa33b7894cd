#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/sim/simulation.h"

namespace quire::sim {
namespace {

Totals simulate(const World& world, uint64_t seed, int requests, const std::string& replay) {
  Simulation simulation(world, seed);
  const auto violation = simulation.run(requests, std::numeric_limits<int64_t>::max());
  if (violation) ADD_FAILURE() << *violation << "\nreplay: " << replay;
  return simulation.totals();
}

TEST(Simulation, TenThousandRequestsInWorldsThatWereMadeToHurt) {
  constexpr int kSeeds = 4, kRequests = 120;
  Totals totals;
  for (size_t world = 0; world < named_worlds().size(); ++world) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      totals += simulate(
          named_worlds()[world], seed, kRequests,
          fmt::format("build/release/bin/sim --world {} --seed {} --requests {}", world, seed, kRequests));
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GE(totals.requests, 10'000);
  EXPECT_GT(totals.refused, 100);
  EXPECT_GT(totals.cancelled, 500);
  EXPECT_GT(totals.preemptions, 150);
  EXPECT_GT(totals.hits, 2000);
  EXPECT_GT(totals.copies, 2000);
  EXPECT_GT(totals.forks, 2000);
  EXPECT_GT(totals.pins, 100);
  for (int64_t cancelled : totals.ended_as) EXPECT_GT(cancelled, 0);  // in each state
}

TEST(Simulation, TenThousandRequestsInRandomWorlds) {
  constexpr int kSeeds = 100, kRequests = 100;
  Totals totals;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    totals += simulate(random_world(seed), seed, kRequests,
                       fmt::format("build/release/bin/sim --seed {} --requests {}", seed, kRequests));
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(totals.requests, 10'000);
  EXPECT_GT(totals.forks, 500);
}

}  // namespace
}  // namespace quire::sim
