#include "cli/progress.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ns() const override { return now; }
  int64_t now = 0;
};

TEST(Progress, TellsPartCountAndRest) {
  ManualClock clock;
  Progress progress("windows", 16, Progress::Style::kBar, clock);
  EXPECT_EQ(progress.line(4, 30, "perplexity 36.0"),
            "[======                  ]  25 %  4/16 windows  ETA 1:30  perplexity 36.0");
  EXPECT_EQ(progress.line(16, 120, ""), "[========================] 100 %  16/16 windows");
}

TEST(Progress, OverrunsStayInTheBar) {
  ManualClock clock;
  Progress progress("rounds", 2, Progress::Style::kBar, clock);
  EXPECT_EQ(progress.line(5, 1, ""), "[========================] 100 %  5/2 rounds");
}

TEST(Progress, SparseLinesHaveNoControlCharacters) {
  ManualClock clock;
  Progress progress("windows", 10, Progress::Style::kSparseLines, clock);
  testing::internal::CaptureStderr();
  progress.update(1, "");
  clock.now = 9'000'000'000;
  progress.update(2, "");
  clock.now = 10'000'000'000;
  progress.update(5, "");
  progress.finish();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), " 50 %  5/10 windows  ETA 0:10\n");
}

TEST(Progress, TheBarLeavesACleanLine) {
  ManualClock clock;
  testing::internal::CaptureStderr();
  {
    Progress progress("windows", 2, Progress::Style::kBar, clock);
    clock.now = 200'000'000;
    progress.update(1, "");
    clock.now = 250'000'000;
    progress.update(2, "");  // too soon to redraw
  }
  std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("1/2 windows"), std::string::npos);
  EXPECT_EQ(text.find("2/2 windows"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\x1b[K"));
}

}  // namespace
}  // namespace quire
