#include "kv/block_pool.h"

#include <utility>

namespace quire {

OpenBlock::OpenBlock(OpenBlock&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, kNoBlock)) {}

OpenBlock& OpenBlock::operator=(OpenBlock&& other) noexcept {
  if (this == &other) return *this;
  if (pool_ != nullptr) pool_->drop_open(id_);
  pool_ = std::exchange(other.pool_, nullptr);
  id_ = std::exchange(other.id_, kNoBlock);
  return *this;
}

OpenBlock::~OpenBlock() {
  if (pool_ != nullptr) pool_->drop_open(id_);
}

KeptBlock::KeptBlock(KeptBlock&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, kNoBlock)) {}

KeptBlock& KeptBlock::operator=(KeptBlock&& other) noexcept {
  if (this == &other) return *this;
  if (pool_ != nullptr) pool_->drop_keep(id_);
  pool_ = std::exchange(other.pool_, nullptr);
  id_ = std::exchange(other.id_, kNoBlock);
  return *this;
}

KeptBlock::~KeptBlock() {
  if (pool_ != nullptr) pool_->drop_keep(id_);
}

SealedBlock::SealedBlock(const SealedBlock& other) : pool_(other.pool_), id_(other.id_) {
  if (pool_ != nullptr) pool_->add_pin(id_);
}

SealedBlock::SealedBlock(SealedBlock&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, kNoBlock)) {}

SealedBlock& SealedBlock::operator=(SealedBlock other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(id_, other.id_);
  return *this;
}

SealedBlock::~SealedBlock() {
  if (pool_ != nullptr) pool_->drop_pin(id_);
}

BlockPool::BlockPool(int block_count) {
  CHECK(block_count >= 0);
  blocks_.resize(static_cast<size_t>(block_count));
  // Backwards, so that frames are first touched in ascending order.
  for (int32_t i = block_count - 1; i >= 0; --i) push_free(BlockId{i});
}

BlockPool::~BlockPool() {
  CHECK(open_count_ == 0);
  CHECK(pinned_count_ == 0);
}

std::optional<OpenBlock> BlockPool::lease() {
  if (free_head_ < 0) return std::nullopt;
  return open_free(BlockId{free_head_});
}

OpenBlock BlockPool::open_free(BlockId id) {
  Block& leased = block(id);
  (leased.previous < 0 ? free_head_ : block(BlockId{leased.previous}).next) = leased.next;
  if (leased.next >= 0) block(BlockId{leased.next}).previous = leased.previous;
  --free_count_;
  leased = Block{};
  leased.state = BlockState::kOpen;
  leased.pins = 1;
  ++open_count_;
  return OpenBlock(this, id);
}

// Free blocks in a row from `first` on.
int BlockPool::free_run_at(int first) const {
  int end = first;
  while (end < total() && blocks_[static_cast<size_t>(end)].state == BlockState::kFree) ++end;
  return end - first;
}

std::vector<OpenBlock> BlockPool::lease_range(int count) {
  CHECK(count >= 1);
  std::vector<OpenBlock> range;
  int first = 0;
  for (int run = 0; first < total(); first += run + 1) {
    run = free_run_at(first);
    if (run >= count) break;
  }
  if (first >= total()) return range;
  range.reserve(static_cast<size_t>(count));
  for (int32_t i = first; i < first + count; ++i) range.push_back(open_free(BlockId{i}));
  return range;
}

int BlockPool::free_in_ranges_below(int count) const {
  int free = 0;
  for (int first = 0, run = 0; first < total(); first += run + 1) {
    run = free_run_at(first);
    if (run < count) free += run;
  }
  return free;
}

OpenBlock BlockPool::share(const OpenBlock& open) {
  CHECK(open.pool_ == this && block(open.id_).state == BlockState::kOpen);
  ++block(open.id_).pins;
  return OpenBlock(this, open.id_);
}

KeptBlock BlockPool::keep(OpenBlock open) {
  CHECK(open.pool_ == this);
  ++block(open.id_).keeps;
  return KeptBlock(this, open.id_);
}

OpenBlock BlockPool::reopen(KeptBlock kept) {
  CHECK(kept.pool_ == this);
  ++block(kept.id_).pins;
  return OpenBlock(this, kept.id_);
}

SealedBlock BlockPool::seal(OpenBlock open) {
  CHECK(open.pool_ == this);
  const BlockId id = open.id_;
  open.pool_ = nullptr;
  Block& sealed = block(id);
  CHECK(sealed.state == BlockState::kOpen && sealed.pins == 1 && sealed.keeps == 0);
  sealed.state = BlockState::kPinned;
  --open_count_;
  ++pinned_count_;
  return SealedBlock(this, id);
}

SealedBlock BlockPool::pin(BlockId id) {
  add_pin(id);
  return SealedBlock(this, id);
}

void BlockPool::set_cached(BlockId id, bool cached) {
  Block& changed = block(id);
  CHECK(changed.state == BlockState::kPinned || changed.state == BlockState::kIdle);
  changed.cached = cached;
  if (cached || changed.state == BlockState::kPinned) return;
  unlink_idle(id);
  push_free(id);
}

BlockId BlockPool::oldest_idle() const {
  return BlockId{idle_head_};
}

const BlockPool::Block& BlockPool::block(BlockId id) const {
  CHECK(id.value >= 0 && id.value < total());
  return blocks_[static_cast<size_t>(id.value)];
}

// The last one freed is leased first: its frame is the likeliest to be resident.
void BlockPool::push_free(BlockId id) {
  Block& freed = block(id);
  freed = Block{};
  freed.next = free_head_;
  if (free_head_ >= 0) block(BlockId{free_head_}).previous = id.value;
  free_head_ = id.value;
  ++free_count_;
}

void BlockPool::push_idle(BlockId id) {
  Block& idle = block(id);
  idle.state = BlockState::kIdle;
  idle.previous = idle_tail_;
  idle.next = -1;
  (idle_tail_ < 0 ? idle_head_ : block(BlockId{idle_tail_}).next) = id.value;
  idle_tail_ = id.value;
  ++idle_count_;
}

void BlockPool::unlink_idle(BlockId id) {
  Block& idle = block(id);
  (idle.previous < 0 ? idle_head_ : block(BlockId{idle.previous}).next) = idle.next;
  (idle.next < 0 ? idle_tail_ : block(BlockId{idle.next}).previous) = idle.previous;
  idle.previous = idle.next = -1;
  --idle_count_;
}

void BlockPool::drop_open(BlockId id) {
  Block& dropped = block(id);
  CHECK(dropped.state == BlockState::kOpen && dropped.pins > 0);
  if (--dropped.pins > 0 || dropped.keeps > 0) return;
  --open_count_;
  push_free(id);
}

void BlockPool::drop_keep(BlockId id) {
  Block& dropped = block(id);
  CHECK(dropped.state == BlockState::kOpen && dropped.keeps > 0);
  if (--dropped.keeps > 0 || dropped.pins > 0) return;
  --open_count_;
  push_free(id);
}

void BlockPool::add_pin(BlockId id) {
  Block& pinned = block(id);
  CHECK(pinned.state == BlockState::kPinned || pinned.state == BlockState::kIdle);
  if (pinned.state == BlockState::kIdle) {
    unlink_idle(id);
    pinned.state = BlockState::kPinned;
    ++pinned_count_;
  }
  ++pinned.pins;
}

void BlockPool::drop_pin(BlockId id) {
  Block& unpinned = block(id);
  CHECK(unpinned.state == BlockState::kPinned && unpinned.pins > 0);
  if (--unpinned.pins > 0) return;
  --pinned_count_;
  if (unpinned.cached) {
    push_idle(id);
  } else {
    push_free(id);
  }
}

void BlockPool::audit() const {
  int open = 0, pinned = 0;
  for (const Block& b : blocks_) {
    if (b.state == BlockState::kOpen) ++open;
    if (b.state == BlockState::kPinned) ++pinned;
    CHECK(b.keeps >= 0 && (b.keeps == 0 || b.state == BlockState::kOpen));
    CHECK((b.pins + b.keeps > 0) == (b.state == BlockState::kPinned || b.state == BlockState::kOpen));
    CHECK(!b.cached || b.state == BlockState::kPinned || b.state == BlockState::kIdle);
  }
  CHECK(open == open_count_);
  CHECK(pinned == pinned_count_);
  CHECK(free_count_ + open_count_ + pinned_count_ + idle_count_ == total());
  audit_free_list();
  audit_idle_list();
}

void BlockPool::audit_free_list() const {
  int count = 0;
  int32_t previous = -1;
  for (int32_t i = free_head_; i >= 0; i = block(BlockId{i}).next) {
    CHECK(block(BlockId{i}).state == BlockState::kFree && block(BlockId{i}).previous == previous);
    CHECK(++count <= free_count_);
    previous = i;
  }
  CHECK(count == free_count_);
}

void BlockPool::audit_idle_list() const {
  int count = 0;
  int32_t previous = -1;
  for (int32_t i = idle_head_; i >= 0; i = block(BlockId{i}).next) {
    const Block& idle = block(BlockId{i});
    CHECK(idle.state == BlockState::kIdle && idle.cached && idle.previous == previous);
    CHECK(++count <= idle_count_);
    previous = i;
  }
  CHECK(count == idle_count_);
  CHECK(previous == idle_tail_);
}

}  // namespace quire
