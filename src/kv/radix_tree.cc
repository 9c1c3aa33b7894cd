#include "kv/radix_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/checked.h"

namespace quire {
namespace {

// Treap priorities: a fixed mix of the node's number, so that a tree's shape is reproducible and does not
// follow from the tokens.
uint32_t priority_of(int32_t node) {
  auto x = static_cast<uint32_t>(node) + 0x9e3779b9U;
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

}  // namespace

RadixTree::RadixTree(KvGeometry geometry, std::vector<BlockPool*> pools)
    : geometry_(std::move(geometry)), pools_(std::move(pools)) {
  CHECK(geometry_.block_tokens > 0);
  CHECK(pools_.size() == geometry_.groups.size());
  CHECK(pools_.size() <= kLayerGroupsMax);
  for (const BlockPool* pool : pools_) owner_.emplace_back(static_cast<size_t>(pool->total()), kNone);
}

std::span<const TokenId> RadixTree::tokens_of(int32_t node) const {
  const auto count = static_cast<size_t>(geometry_.block_tokens);
  return std::span(tokens_).subspan(static_cast<size_t>(node) * count, count);
}

int32_t RadixTree::start_of(CacheScope scope, PrefixNodeId parent) const {
  if (parent != kNoPrefixNode) {
    CHECK(at(parent.value).kind == Node::Kind::kBlock);
    return parent.value;
  }
  const auto root = roots_.find(scope);
  return root == roots_.end() ? kNone : root->second;
}

bool RadixTree::has_all_blocks(const Node& node) const {
  return std::all_of(node.blocks.begin(), node.blocks.begin() + std::ssize(pools_),
                     [](BlockId id) { return id != kNoBlock; });
}

bool RadixTree::has_any_block(const Node& node) const {
  return std::any_of(node.blocks.begin(), node.blocks.end(), [](BlockId id) { return id != kNoBlock; });
}

// Whether a hit can end there.
bool RadixTree::is_useful_leaf(int32_t node) const {
  if (at(node).dropped || !has_any_block(at(node))) return false;
  for (size_t g = 0; g < pools_.size(); ++g) {
    int wanted = geometry_.groups[g].window - 1;
    for (int32_t i = node; wanted > 0 && at(i).kind == Node::Kind::kBlock; i = at(i).parent) {
      if (at(i).blocks[g] == kNoBlock) return false;
      wanted -= geometry_.block_tokens;
    }
  }
  return true;
}

// Both neighbours of `tokens` among the siblings lie on the way down, so the most equal leading tokens do
// too.
RadixTree::Search RadixTree::search(int32_t parent, std::span<const TokenId> tokens) const {
  const size_t wanted = std::min(tokens.size(), static_cast<size_t>(geometry_.block_tokens));
  Search found;
  for (int32_t i = at(parent).children; i != kNone;) {
    const std::span<const TokenId> own = tokens_of(i);
    const auto equal = static_cast<size_t>(
        std::mismatch(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(wanted), tokens.begin()).first -
        own.begin());
    if (static_cast<int>(equal) > found.best_tokens && has_all_blocks(at(i))) {
      found.best = i;
      found.best_tokens = static_cast<int>(equal);
    }
    if (equal == wanted) {
      if (wanted == own.size()) found.node = i;
      break;
    }
    found.last = i;
    found.goes_left = tokens[equal] < own[equal];
    i = found.goes_left ? at(i).left : at(i).right;
  }
  return found;
}

PrefixMatch RadixTree::match(CacheScope scope, std::span<const TokenId> tokens) const {
  PrefixMatch match;
  int32_t node = start_of(scope, kNoPrefixNode);
  if (node == kNone) return match;
  const auto block_tokens = static_cast<size_t>(geometry_.block_tokens);
  std::array<size_t, kLayerGroupsMax>
      run{};  // [group]: blocks in a row that are there, ending with the path's
  size_t servable = 0;
  for (std::span<const TokenId> rest = tokens; rest.size() >= block_tokens;
       rest = rest.subspan(block_tokens)) {
    node = search(node, rest).node;
    if (node == kNone) break;
    match.path.push_back({node});
    const size_t end = match.path.size() * block_tokens;
    bool usable = true;
    for (size_t g = 0; g < pools_.size(); ++g) {
      run[g] = at(node).blocks[g] == kNoBlock ? 0 : run[g] + 1;
      const auto window = static_cast<size_t>(geometry_.groups[g].window);
      usable &= run[g] * block_tokens >= (window == 0 ? end : std::min(end, window - 1));
    }
    if (usable) servable = match.path.size();
  }
  match.path.resize(servable);
  // Whatever is servable up to a node stays so within a child that has all its blocks.
  const PrefixNodeId last = match.path.empty() ? kNoPrefixNode : match.path.back();
  const Search partial = search(start_of(scope, last), tokens.subspan(servable * block_tokens));
  match.partial = {partial.best};
  match.partial_tokens = partial.best_tokens;
  return match;
}

PrefixNodeId RadixTree::find(CacheScope scope, PrefixNodeId parent, std::span<const TokenId> tokens) const {
  CHECK(static_cast<int>(tokens.size()) == geometry_.block_tokens);
  const int32_t start = start_of(scope, parent);
  return start == kNone ? kNoPrefixNode : PrefixNodeId{search(start, tokens).node};
}

void RadixTree::touch(const PrefixMatch& match) {
  const auto touch_node = [&](PrefixNodeId node) {
    for (size_t g = 0; g < pools_.size(); ++g) {
      const BlockId id = at(node.value).blocks[g];
      // Pinned and let go at once: the youngest of the idle ones.
      if (id != kNoBlock && pools_[g]->state(id) == BlockState::kIdle) (void)pools_[g]->pin(id);
    }
  };
  if (match.partial != kNoPrefixNode) touch_node(match.partial);
  std::for_each(match.path.rbegin(), match.path.rend(), touch_node);
}

PrefixNodeId RadixTree::insert(const SealedPrefix& prefix) {
  CHECK(static_cast<int>(prefix.tokens.size()) == geometry_.block_tokens);
  CHECK(prefix.blocks.size() == pools_.size());
  int32_t parent = start_of(prefix.scope, prefix.parent);
  if (parent == kNone) parent = make_root(prefix.scope);
  const Search place = search(parent, prefix.tokens);
  int32_t node = place.node;
  if (node == kNone) {
    node = make_node();
    at(node).kind = Node::Kind::kBlock;
    at(node).parent = parent;
    at(node).dropped = at(parent).dropped;
    std::ranges::copy(prefix.tokens,
                      tokens_.begin() + static_cast<std::ptrdiff_t>(node) * geometry_.block_tokens);
    attach(node, place);
    ++node_count_;
  }
  for (size_t g = 0; g < pools_.size(); ++g) {
    if (at(node).blocks[g] == kNoBlock && prefix.blocks[g] != kNoBlock)
      set_block(node, static_cast<int>(g), prefix.blocks[g]);
    CHECK(geometry_.groups[g].window > 0 || at(node).blocks[g] != kNoBlock);
  }
  CHECK(place.node != kNone || has_any_block(at(node)));
  return {node};
}

void RadixTree::hold(PrefixNodeId node) {
  if (node == kNoPrefixNode) return;
  CHECK(at(node.value).kind == Node::Kind::kBlock);
  ++at(node.value).holds;
}

void RadixTree::release(PrefixNodeId node) {
  if (node == kNoPrefixNode) return;
  CHECK(at(node.value).kind == Node::Kind::kBlock && at(node.value).holds > 0);
  --at(node.value).holds;
  remove_if_useless(node.value);
}

void RadixTree::drop_scope(CacheScope scope) {
  const auto root = roots_.find(scope);
  if (root == roots_.end()) return;
  std::vector<int32_t> parents_first, pending = {at(root->second).children};
  at(root->second).dropped = true;
  roots_.erase(root);
  while (!pending.empty()) {
    const int32_t node = pending.back();
    pending.pop_back();
    if (node == kNone) continue;
    at(node).dropped = true;
    parents_first.push_back(node);
    pending.insert(pending.end(), {at(node).left, at(node).right, at(node).children});
  }
  for (size_t i = parents_first.size(); i-- > 0;)
    if (at(parents_first[i]).kind == Node::Kind::kBlock) remove_if_useless(parents_first[i]);
}

bool RadixTree::evict_one(int group) {
  const auto g = static_cast<size_t>(group);
  const BlockId oldest = pools_[g]->oldest_idle();
  if (oldest == kNoBlock) return false;
  const int32_t node = owner_[g][static_cast<size_t>(oldest.value)];
  CHECK(node != kNone);
  if (geometry_.groups[g].window > 0) {
    clear_block(node, group);
    remove_useless_below(node, ceil_div(geometry_.groups[g].window - 1, geometry_.block_tokens));
  } else {
    CHECK(at(node).children == kNone && at(node).holds == 0);
    clear_blocks(node);
    remove_if_useless(node);
  }
  return true;
}

PrefixNodeId RadixTree::parent(PrefixNodeId node) const {
  const int32_t above = at(node.value).parent;
  return at(above).kind == Node::Kind::kRoot ? kNoPrefixNode : PrefixNodeId{above};
}

int32_t RadixTree::make_node() {
  if (unused_ == kNone) {
    nodes_.emplace_back();
    tokens_.resize(nodes_.size() * static_cast<size_t>(geometry_.block_tokens));
    return static_cast<int32_t>(nodes_.size() - 1);
  }
  const int32_t node = unused_;
  unused_ = at(node).children;
  at(node) = Node{};
  return node;
}

int32_t RadixTree::make_root(CacheScope scope) {
  const int32_t root = make_node();
  at(root).kind = Node::Kind::kRoot;
  at(root).scope = scope;
  roots_.emplace(scope, root);
  return root;
}

void RadixTree::set_block(int32_t node, int group, BlockId block) {
  const auto g = static_cast<size_t>(group);
  pools_[g]->set_cached(block, true);
  at(node).blocks[g] = block;
  owner_[g][static_cast<size_t>(block.value)] = node;
}

void RadixTree::clear_block(int32_t node, int group) {
  const auto g = static_cast<size_t>(group);
  const BlockId block = std::exchange(at(node).blocks[g], kNoBlock);
  owner_[g][static_cast<size_t>(block.value)] = kNone;
  pools_[g]->set_cached(block, false);
}

void RadixTree::clear_blocks(int32_t node) {
  for (size_t g = 0; g < pools_.size(); ++g)
    if (at(node).blocks[g] != kNoBlock) clear_block(node, static_cast<int>(g));
}

void RadixTree::attach(int32_t node, const Search& place) {
  at(node).up = place.last;
  if (place.last == kNone) {
    at(at(node).parent).children = node;
    return;
  }
  (place.goes_left ? at(place.last).left : at(place.last).right) = node;
  while (at(node).up != kNone && priority_of(node) > priority_of(at(node).up)) rotate_up(node);
}

void RadixTree::detach(int32_t node) {
  while (at(node).left != kNone && at(node).right != kNone) {
    const int32_t left = at(node).left, right = at(node).right;
    rotate_up(priority_of(left) > priority_of(right) ? left : right);
  }
  const int32_t child = at(node).left != kNone ? at(node).left : at(node).right;
  replace_child(node, child);
  if (child != kNone) at(child).up = at(node).up;
}

// Where the treap above `node` points to it, lets it point to `by`.
void RadixTree::replace_child(int32_t node, int32_t by) {
  const int32_t up = at(node).up;
  if (up == kNone) {
    at(at(node).parent).children = by;
  } else {
    (at(up).left == node ? at(up).left : at(up).right) = by;
  }
}

void RadixTree::rotate_up(int32_t node) {
  const int32_t down = at(node).up;
  replace_child(down, node);
  at(node).up = at(down).up;
  at(down).up = node;
  int32_t& inner = at(down).left == node ? at(node).right : at(node).left;
  (at(down).left == node ? at(down).left : at(down).right) = inner;
  if (inner != kNone) at(inner).up = down;
  inner = down;
}

void RadixTree::remove_if_useless(int32_t node) {
  while (node != kNone) {
    Node& useless = at(node);
    if (useless.children != kNone || useless.holds > 0) return;
    const int32_t parent = useless.parent;
    if (useless.kind == Node::Kind::kRoot) {
      if (!useless.dropped) roots_.erase(useless.scope);
    } else {
      if (is_useful_leaf(node)) return;
      clear_blocks(node);
      detach(node);
      --node_count_;
    }
    useless = Node{};
    useless.children = unused_;
    unused_ = node;
    node = parent;
  }
}

// The node has lost a window's block: leaves less than `depth` nodes below may have served by it.
void RadixTree::remove_useless_below(int32_t node, int depth) {
  struct Place {
    int32_t node;
    int depth;
  };
  std::vector<Place> pending = {{node, 0}};
  std::vector<int32_t> leaves;
  for (size_t searched = 0; !pending.empty() && searched < kSearchedBelowMax; ++searched) {
    const Place place = pending.back();
    pending.pop_back();
    const Node& at_place = at(place.node);
    if (at_place.children == kNone) leaves.push_back(place.node);
    if (at_place.children != kNone && place.depth + 1 < depth)
      pending.push_back({at_place.children, place.depth + 1});
    if (place.node == node) continue;
    for (int32_t sibling : {at_place.left, at_place.right})
      if (sibling != kNone) pending.push_back({sibling, place.depth});
  }
  for (int32_t leaf : leaves) remove_if_useless(leaf);
}

void RadixTree::audit() const {
  int blocks = 0;
  std::array<int, kLayerGroupsMax> cached{};
  for (int32_t i = 0; i < static_cast<int32_t>(nodes_.size()); ++i) {
    const Node& node = at(i);
    if (node.kind == Node::Kind::kUnused) continue;
    if (node.kind == Node::Kind::kRoot) {
      CHECK(node.dropped || roots_.at(node.scope) == i);
      CHECK(node.children != kNone);
      continue;
    }
    ++blocks;
    audit_node(i);
    for (size_t g = 0; g < pools_.size(); ++g) cached[g] += node.blocks[g] == kNoBlock ? 0 : 1;
  }
  CHECK(blocks == node_count_);
  for (size_t g = 0; g < pools_.size(); ++g) {
    int32_t pool_cached = 0;
    for (int32_t b = 0; b < pools_[g]->total(); ++b) pool_cached += pools_[g]->is_cached(BlockId{b}) ? 1 : 0;
    CHECK(pool_cached == cached[g]);
    const BlockId oldest = pools_[g]->oldest_idle();
    if (geometry_.groups[g].window > 0 || oldest == kNoBlock) continue;
    CHECK(at(owner_[g][static_cast<size_t>(oldest.value)]).children == kNone);
  }
}

void RadixTree::audit_node(int32_t index) const {
  const Node& node = at(index);
  CHECK(node.holds > 0 || node.children != kNone || (has_any_block(node) && !node.dropped));
  CHECK(node.dropped == at(node.parent).dropped);
  CHECK(at(node.parent).kind != Node::Kind::kUnused);
  for (size_t g = 0; g < pools_.size(); ++g) {
    const BlockId id = node.blocks[g];
    CHECK(id != kNoBlock || geometry_.groups[g].window > 0);
    if (id == kNoBlock) continue;
    CHECK(owner_[g][static_cast<size_t>(id.value)] == index && pools_[g]->is_cached(id));
  }
  // Found by its own tokens: the treap's order is right, and no sibling is equal.
  CHECK(search(node.parent, tokens_of(index)).node == index);
  for (int32_t below : {node.left, node.right}) {
    if (below == kNone) continue;
    CHECK(at(below).up == index && at(below).parent == node.parent);
    CHECK(priority_of(below) < priority_of(index));
  }
  if (node.children != kNone) CHECK(at(node.children).parent == index && at(node.children).up == kNone);
}

}  // namespace quire
