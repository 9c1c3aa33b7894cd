#include "sched/prefix_pins.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

Result<PinId> PrefixPins::pin(const PinRequest& request) {
  expire(request.now_ns);
  if (request.ttl_ms < 1 || request.ttl_ms > kPinTtlMsMax) {
    return fail(ErrorCode::kInvalidArgument, "ttl_ms", "ttl_ms is {}, must be >= 1 and at most {}",
                request.ttl_ms, kPinTtlMsMax);
  }
  const auto block_tokens = static_cast<size_t>(parts_.geometry->block_tokens);
  const size_t blocks = request.tokens.size() / block_tokens;
  if (blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "prompt_token_ids",
                "a prefix of {} tokens has no whole block of {}, nothing can be pinned",
                request.tokens.size(), block_tokens);
  }
  const PrefixMatch match = parts_.tree->match(request.scope, request.tokens);
  if (match.path.size() < blocks) {
    return fail(ErrorCode::kNotFound, "prompt_token_ids",
                "{} of the prefix's {} whole blocks are cached, all must be: compute it first",
                match.path.size(), blocks);
  }
  const std::vector<BlockIds> wanted = blocks_of(match);
  TRY(check_quota(wanted));
  Pin pin{.blocks = {}, .tip = match.path.back(), .expires_ns = request.now_ns + request.ttl_ms * kNsPerMs};
  for (const BlockIds& ids : wanted) {
    SealedBlocks& held = pin.blocks.emplace_back();
    for (size_t g = 0; g < parts_.pools.size(); ++g) {
      if (ids[g] == kNoBlock) continue;
      held[g] = parts_.pools[g]->pin(ids[g]);
      ++holders_[g][ids[g]];
    }
  }
  parts_.tree->hold(pin.tip);
  const PinId id{++ids_};
  pins_.emplace(id, std::move(pin));
  return id;
}

// [block of the prefix]: what a hit at its end needs.
std::vector<BlockIds> PrefixPins::blocks_of(const PrefixMatch& match) const {
  const int block_tokens = parts_.geometry->block_tokens;
  const int end = static_cast<int>(match.path.size()) * block_tokens;
  std::vector<BlockIds> blocks(match.path.size());
  for (size_t i = 0; i < match.path.size(); ++i) {
    blocks[i].fill(kNoBlock);
    const int last_position = (static_cast<int>(i) + 1) * block_tokens - 1;
    for (size_t g = 0; g < parts_.pools.size(); ++g) {
      const int window = parts_.geometry->groups[g].window;
      if (window == 0 || last_position > end - window)
        blocks[i][g] = parts_.tree->block(match.path[i], static_cast<int>(g));
    }
  }
  return blocks;
}

Result<> PrefixPins::check_quota(std::span<const BlockIds> wanted) const {
  for (size_t g = 0; g < parts_.pools.size(); ++g) {
    const auto more = std::ranges::count_if(
        wanted, [&](const BlockIds& ids) { return ids[g] != kNoBlock && !holders_[g].contains(ids[g]); });
    if (std::ssize(holders_[g]) + more <= parts_.blocks_max) continue;
    return fail(ErrorCode::kResourceExhausted, "pinned_blocks_max",
                "the prefix needs {} more pinned blocks of {} tokens in layer group {}, pinned_blocks_max is "
                "{} and {} are pinned",
                more, parts_.geometry->block_tokens, g, parts_.blocks_max, holders_[g].size());
  }
  return {};
}

PrefixPins::Pins::iterator PrefixPins::let_go(Pins::iterator pin) {
  Pin& gone = pin->second;
  parts_.tree->release(gone.tip);
  // Children before parents.
  for (; !gone.blocks.empty(); gone.blocks.pop_back()) {
    for (size_t g = 0; g < parts_.pools.size(); ++g) {
      if (!gone.blocks.back()[g]) continue;
      const auto holder = holders_[g].find(gone.blocks.back()[g].id());
      if (--holder->second == 0) holders_[g].erase(holder);
    }
  }
  return pins_.erase(pin);
}

Result<> PrefixPins::unpin(PinId id) {
  const auto pin = pins_.find(id);
  if (pin == pins_.end())
    return fail(ErrorCode::kNotFound, "pin_id", "pin_id is {}, no prefix is pinned under it", id.value);
  let_go(pin);
  return {};
}

void PrefixPins::expire(int64_t now_ns) {
  for (auto pin = pins_.begin(); pin != pins_.end();)
    pin = pin->second.expires_ns <= now_ns ? let_go(pin) : std::next(pin);
}

int PrefixPins::blocks_held_alone(int group) const {
  const BlockPool& pool = *parts_.pools[static_cast<size_t>(group)];
  return static_cast<int>(std::ranges::count_if(
      holders(group), [&](const auto& holder) { return pool.pin_count(holder.first) == holder.second; }));
}

}  // namespace quire
