#include "engine/inbox.h"

#include <utility>

#include "base/check.h"

namespace quire {

Result<> Inbox::submit(Submission submission) {
  std::lock_guard lock(mutex_);
  if (batch_.state == InboxBatch::State::kClosed) {
    return fail(ErrorCode::kCancelled, "", "the engine is stopping");
  }
  if (waiting_count_ >= capacity_) {
    return fail(ErrorCode::kOverloaded, "inbox_requests_max", "{} requests wait, limit is {}", waiting_count_,
                capacity_);
  }
  ++waiting_count_;
  batch_.submissions.push_back(std::move(submission));
  arrived_.notify_one();
  return {};
}

void Inbox::cancel(const Cancellation& cancellation) {
  std::lock_guard lock(mutex_);
  if (batch_.state == InboxBatch::State::kClosed) return;
  batch_.cancellations.push_back(cancellation);
  arrived_.notify_one();
}

std::future<Result<PinId>> Inbox::order_pin(PinOrder order) {
  std::future<Result<PinId>> answer = order.answer.get_future();
  std::lock_guard lock(mutex_);
  if (batch_.state == InboxBatch::State::kClosed) {
    order.answer.set_value(fail(ErrorCode::kCancelled, "", "the engine is stopping"));
  } else {
    batch_.pin_orders.push_back(std::move(order));
    arrived_.notify_one();
  }
  return answer;
}

void Inbox::close() {
  std::lock_guard lock(mutex_);
  batch_.state = InboxBatch::State::kClosed;
  arrived_.notify_one();
}

InboxBatch Inbox::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(batch_, InboxBatch{.state = batch_.state});
}

void Inbox::wait() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] {
    return !batch_.submissions.empty() || !batch_.cancellations.empty() || !batch_.pin_orders.empty() ||
           batch_.state == InboxBatch::State::kClosed;
  });
}

void Inbox::left_queue(int count) {
  std::lock_guard lock(mutex_);
  waiting_count_ -= count;
  CHECK(waiting_count_ >= 0);
}

int Inbox::waiting_count() const {
  std::lock_guard lock(mutex_);
  return waiting_count_;
}

}  // namespace quire
