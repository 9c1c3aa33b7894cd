#include "base/work_claims.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

TEST(WorkClaims, GivesEveryItemToOneMember) {
  constexpr int kMembers = 4;
  constexpr int kJobs = 200;
  ThreadPool pool(kMembers);
  WorkClaims claims(kMembers);
  for (int job = 0; job < kJobs; ++job) {
    const int64_t most = 1 + job % 5;
    std::vector<std::vector<std::atomic<int>>> takers(kMembers);
    for (int part = 0; part < kMembers; ++part) {
      takers[part] = std::vector<std::atomic<int>>(job % 7 == part ? 0 : 37 * (part + 1));
      claims.reset(part);
    }
    pool.run([&](int member) {
      for (int i = 0; i < kMembers; ++i) {
        const int part = (member + i) % kMembers;
        const auto count = static_cast<int64_t>(takers[part].size());
        for (Share piece = claims.take(part, count, most); piece.begin < piece.end;
             piece = claims.take(part, count, most)) {
          EXPECT_LE(piece.end - piece.begin, most);
          EXPECT_LE(piece.end, count);
          for (int64_t item = piece.begin; item < piece.end; ++item) ++takers[part][item];
        }
      }
    });
    for (const auto& part : takers) {
      for (const std::atomic<int>& count : part) ASSERT_EQ(count, 1);
    }
  }
}

TEST(WorkClaims, HasNothingMoreAfterTheLastItem) {
  WorkClaims claims(1);
  const Share all = claims.take(0, 3, 10);
  EXPECT_EQ(all.begin, 0);
  EXPECT_EQ(all.end, 3);
  for (int i = 0; i < 3; ++i) {
    const Share none = claims.take(0, 3, 10);
    EXPECT_EQ(none.begin, none.end);
  }
  claims.reset(0);
  EXPECT_EQ(claims.take(0, 3, 2).end, 2);
  EXPECT_EQ(claims.take(0, 0, 2).end, 0);
}

}  // namespace
}  // namespace quire
