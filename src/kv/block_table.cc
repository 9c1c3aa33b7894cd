#include "kv/block_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/checked.h"

namespace quire {

BlockTable::BlockTable(const KvGeometry& geometry, std::span<BlockPool* const> pools)
    : geometry_(&geometry), pools_(pools.begin(), pools.end()), groups_(pools.size()) {
  CHECK(pools.size() == geometry.groups.size());
}

BlockTable::~BlockTable() {
  release();
}

BlockTable BlockTable::fork() const {
  BlockTable child(*geometry_, pools_);
  child.tokens_used_ = tokens_used_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& from = groups_[g];
    Group& to = child.groups_[g];
    CHECK(std::ssize(from.ids) == ceil_div(tokens_used_, geometry_->block_tokens));
    to.ids = from.ids;
    to.sealed = from.sealed;
    to.first_held = from.first_held;
    for (const OpenBlock& open : from.open) to.open.push_back(pools_[g]->share(open));
  }
  return child;
}

bool BlockTable::shares_tail() const {
  const auto shares = [&](size_t g) {
    return !groups_[g].open.empty() && pools_[g]->pin_count(groups_[g].open.front().id()) > 1;
  };
  for (size_t g = 0; g < groups_.size(); ++g)
    if (shares(g)) return true;
  return false;
}

TailCopy BlockTable::unshare_tail() {
  TailCopy copy;
  copy.to.fill(kNoBlock);
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    CHECK(group.open.size() == 1 && pools_[g]->pin_count(group.open.front().id()) > 1);
    auto leased = pools_[g]->lease();
    CHECK(leased);
    copy.from[g] = pools_[g]->keep(std::exchange(group.open.front(), *std::move(leased)));
    copy.to[g] = group.ids.back() = group.open.front().id();
  }
  return copy;
}

void BlockTable::reshare_tail(int group, KeptBlock block) {
  Group& changed = groups_[static_cast<size_t>(group)];
  CHECK(changed.open.size() == 1);
  changed.open.front() = pools_[static_cast<size_t>(group)]->reopen(std::move(block));
  changed.ids.back() = changed.open.front().id();
}

BlockCounts BlockTable::blocks_wanted(int tokens) const {
  CHECK(tokens >= 0);
  const int blocks = ceil_div(tokens_used_ + tokens, geometry_->block_tokens);
  const int copies = tokens > 0 && shares_tail() ? 1 : 0;
  BlockCounts wanted{};
  for (size_t g = 0; g < groups_.size(); ++g)
    wanted[g] = std::max(0, blocks - static_cast<int>(groups_[g].ids.size())) + copies;
  return wanted;
}

BlockCounts BlockTable::blocks_lacking(int tokens) const {
  BlockCounts lacking = blocks_wanted(tokens);
  for (size_t g = 0; g < groups_.size(); ++g) lacking[g] = std::max(0, lacking[g] - pools_[g]->free_count());
  return lacking;
}

bool BlockTable::reserve(int tokens) {
  if (blocks_lacking(tokens) != BlockCounts{}) return false;
  CHECK(tokens == 0 || !shares_tail());
  const BlockCounts wanted = blocks_wanted(tokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (int i = 0; i < wanted[g]; ++i) {
      groups_[g].open.push_back(*pools_[g]->lease());
      groups_[g].ids.push_back(groups_[g].open.back().id());
    }
  }
  return true;
}

bool BlockTable::reserve_range(int tokens) {
  CHECK(tokens >= 1);
  const int blocks = ceil_div(tokens, geometry_->block_tokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    CHECK(groups_[g].ids.empty());
    groups_[g].open = pools_[g]->lease_range(blocks);
    if (groups_[g].open.empty()) {
      release();
      return false;
    }
    for (const OpenBlock& open : groups_[g].open) groups_[g].ids.push_back(open.id());
  }
  return true;
}

int BlockTable::commit(int tokens) {
  CHECK(tokens >= 0);
  const int sealed_before = sealed_count();
  tokens_used_ += tokens;
  const int became_full = sealed_count() - sealed_before;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    CHECK(static_cast<int>(group.ids.size()) * geometry_->block_tokens >= tokens_used_);
    for (int i = 0; i < became_full; ++i)
      group.sealed.push_back(pools_[g]->seal(std::move(group.open[static_cast<size_t>(i)])));
    group.open.erase(group.open.begin(), group.open.begin() + became_full);
  }
  return became_full;
}

int BlockTable::first_visible_block(int group) const {
  const int window = geometry_->groups[static_cast<size_t>(group)].window;
  if (window == 0) return 0;
  return std::max(0, tokens_used_ - window + 1) / geometry_->block_tokens;
}

void BlockTable::drop_left_window() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const int end = std::min(first_visible_block(static_cast<int>(g)), sealed_count());
    for (int i = group.first_held; i < end; ++i) {
      group.sealed[static_cast<size_t>(i)] = SealedBlock();
      group.ids[static_cast<size_t>(i)] = kNoBlock;
    }
    group.first_held = std::max(group.first_held, end);
  }
}

void BlockTable::trim() {
  const auto blocks = static_cast<size_t>(ceil_div(tokens_used_, geometry_->block_tokens));
  for (Group& group : groups_) {
    if (group.ids.size() <= blocks) continue;
    group.open.resize(blocks - group.sealed.size());
    group.ids.resize(blocks);
  }
}

SealedBlocks BlockTable::seal_tail() {
  SealedBlocks tail;
  const int written = tokens_used_ % geometry_->block_tokens;
  if (written == 0 || shares_tail()) return tail;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    CHECK(group.open.size() == 1);
    tail[g] = pools_[g]->seal(std::move(group.open.front()));
    group.open.clear();
    group.ids.pop_back();
  }
  tokens_used_ -= written;
  return tail;
}

void BlockTable::adopt(SealedBlocks blocks) {
  CHECK(tokens_used_ % geometry_->block_tokens == 0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    CHECK(group.open.empty());
    if (!blocks[g]) {
      CHECK(group.first_held == static_cast<int>(group.sealed.size()));
      ++group.first_held;
    }
    group.ids.push_back(blocks[g].id());
    group.sealed.push_back(std::move(blocks[g]));
  }
  tokens_used_ += geometry_->block_tokens;
}

std::optional<BlockIds> BlockTable::adopt_partial(int tokens) {
  CHECK(tokens > 0 && tokens < geometry_->block_tokens);
  CHECK(tokens_used_ % geometry_->block_tokens == 0);
  for (const Group& group : groups_) CHECK(group.open.empty());
  if (!reserve(tokens)) return std::nullopt;
  BlockIds to;
  to.fill(kNoBlock);
  for (size_t g = 0; g < groups_.size(); ++g) to[g] = groups_[g].ids.back();
  tokens_used_ += tokens;
  return to;
}

void BlockTable::replace(int group, int index, SealedBlock block) {
  Group& changed = groups_[static_cast<size_t>(group)];
  CHECK(block);
  CHECK(index >= changed.first_held && index < sealed_count());
  changed.ids[static_cast<size_t>(index)] = block.id();
  changed.sealed[static_cast<size_t>(index)] = std::move(block);
}

void BlockTable::release() {
  for (Group& group : groups_) {
    group.open.clear();
    while (!group.sealed.empty()) group.sealed.pop_back();
    group.ids.clear();
    group.first_held = 0;
  }
  tokens_used_ = 0;
}

std::span<const BlockId> BlockTable::ids(int group) const {
  return groups_[static_cast<size_t>(group)].ids;
}

int BlockTable::blocks_used(int group) const {
  const Group& counted = groups_[static_cast<size_t>(group)];
  return static_cast<int>(counted.ids.size()) - counted.first_held;
}

int BlockTable::blocks_used() const {
  int blocks = 0;
  for (size_t g = 0; g < groups_.size(); ++g) blocks += blocks_used(static_cast<int>(g));
  return blocks;
}

int BlockTable::blocks_unshared(int group) const {
  const Group& counted = groups_[static_cast<size_t>(group)];
  const BlockPool& pool = *pools_[static_cast<size_t>(group)];
  const auto unshared = std::count_if(counted.sealed.begin() + counted.first_held, counted.sealed.end(),
                                      [&](const SealedBlock& b) { return pool.pin_count(b.id()) == 1; });
  const auto unshared_open =
      std::ranges::count_if(counted.open, [&](const OpenBlock& b) { return pool.pin_count(b.id()) == 1; });
  return static_cast<int>(unshared + unshared_open);
}

void BlockTable::audit() const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const BlockPool& pool = *pools_[g];
    CHECK(static_cast<int>(group.sealed.size()) == sealed_count());
    CHECK(group.ids.size() == group.sealed.size() + group.open.size());
    CHECK(static_cast<int>(group.ids.size()) * geometry_->block_tokens >= tokens_used_);
    CHECK(group.first_held <= std::min(first_visible_block(static_cast<int>(g)), sealed_count()));
    for (size_t i = 0; i < group.ids.size(); ++i) {
      const bool sealed = i < group.sealed.size();
      const BlockId id = sealed ? group.sealed[i].id() : group.open[i - group.sealed.size()].id();
      CHECK(group.ids[i] == id);
      CHECK((id == kNoBlock) == (static_cast<int>(i) < group.first_held));
      if (id != kNoBlock) CHECK(pool.state(id) == (sealed ? BlockState::kPinned : BlockState::kOpen));
      // Shared means: written in part by the one that was forked, and by nobody since.
      if (!sealed && pool.pin_count(id) > 1)
        CHECK(group.open.size() == 1 && tokens_used_ % geometry_->block_tokens != 0);
    }
  }
}

}  // namespace quire
