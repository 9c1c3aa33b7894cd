#include "engine/inbox.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace quire {
namespace {

Submission numbered(uint64_t number) {
  Submission submission;
  submission.sequence.seq = SeqId{number};
  return submission;
}

TEST(Inbox, KeepsOrderAndCountsWhoWaits) {
  Inbox inbox(3);
  for (uint64_t i = 1; i <= 3; ++i) EXPECT_TRUE(inbox.submit(numbered(i)).has_value());
  auto refused = inbox.submit(numbered(4));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  inbox.cancel({.request = SeqId{2}, .choice = 1});
  const InboxBatch batch = inbox.take();
  ASSERT_EQ(batch.submissions.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(batch.submissions[i].sequence.seq, SeqId{i + 1});
  ASSERT_EQ(batch.cancellations.size(), 1u);
  EXPECT_EQ(batch.cancellations[0].request, SeqId{2});
  EXPECT_EQ(batch.cancellations[0].choice, 1);
  EXPECT_EQ(batch.state, InboxBatch::State::kOpen);
  // Taken requests still wait, until their first step.
  EXPECT_EQ(inbox.waiting_count(), 3);
  EXPECT_FALSE(inbox.submit(numbered(4)).has_value());
  inbox.left_queue(1);
  EXPECT_TRUE(inbox.submit(numbered(4)).has_value());
  EXPECT_EQ(inbox.take().submissions.size(), 1u);
  EXPECT_TRUE(inbox.take().submissions.empty());
}

TEST(Inbox, WakesTheSleeperAndRefusesAfterClosing) {
  Inbox inbox(1);
  std::thread door([&] { EXPECT_TRUE(inbox.submit(numbered(7)).has_value()); });
  inbox.wait();
  EXPECT_EQ(inbox.take().submissions.size(), 1u);
  door.join();
  std::thread closer([&] { inbox.close(); });
  inbox.wait();
  EXPECT_EQ(inbox.take().state, InboxBatch::State::kClosed);
  closer.join();
  inbox.left_queue(1);
  auto refused = inbox.submit(numbered(8));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kCancelled);
  inbox.cancel({.request = SeqId{7}});
  EXPECT_TRUE(inbox.take().cancellations.empty());
}

}  // namespace
}  // namespace quire
