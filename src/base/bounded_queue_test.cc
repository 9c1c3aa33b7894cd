#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace quire {
namespace {

TEST(BoundedQueue, RefusesWhenFullAndLeavesTheItem) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.try_push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(queue.try_push(std::move(second)));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(**queue.try_pop(), 1);
  EXPECT_FALSE(queue.try_pop().has_value());
}

TEST(BoundedQueue, CloseDrainsThenEnds) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.try_push(1));
  EXPECT_TRUE(queue.try_push(2));
  queue.close();
  EXPECT_FALSE(queue.try_push(3));
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueue, PopSleepsUntilSomethingComes) {
  BoundedQueue<int> queue(4);
  int got = 0;
  std::thread consumer([&] { got = queue.pop().value_or(-1); });
  EXPECT_TRUE(queue.try_push(42));
  consumer.join();
  EXPECT_EQ(got, 42);
}

}  // namespace
}  // namespace quire
