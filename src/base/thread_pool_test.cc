#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace quire {
namespace {

class ThreadPoolSizes : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolSizes, EveryMemberRunsOnceAndRunWaitsForAll) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 200; ++round) {
    std::vector<int> calls(pool.size(), 0);
    pool.run([&](int index) { ++calls[index]; });
    for (int count : calls) ASSERT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolSizes, BarrierSeparatesPhases) {
  ThreadPool pool(GetParam());
  std::atomic<int> arrived{0};
  std::atomic<bool> early{false};
  constexpr int kPhases = 100;
  pool.run([&](int) {
    for (int phase = 0; phase < kPhases; ++phase) {
      arrived.fetch_add(1);
      pool.barrier();
      if (arrived.load() < (phase + 1) * pool.size()) early = true;
      pool.barrier();
    }
  });
  EXPECT_FALSE(early);
  EXPECT_EQ(arrived.load(), kPhases * pool.size());
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolSizes, testing::Values(1, 2, 3, 8));

TEST(ShareOf, CoversAllItemsOnce) {
  for (int members = 1; members < 6; ++members) {
    for (int64_t count = 0; count < 20; ++count) {
      int64_t next = 0;
      for (int i = 0; i < members; ++i) {
        Share share = share_of(count, i, members);
        EXPECT_EQ(share.begin, next);
        next = share.end;
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace quire
