#include "kv/kv_store.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/checked.h"

namespace quire {
namespace {

// Limits against absurd files; each is far above what any model has.
constexpr int kBlockTokensMax = 4096;
constexpr int kHeadDimMax = 1 << 16;
constexpr int kHeadsMax = 1 << 16;
constexpr int kLayersMax = 1 << 16;
constexpr size_t kHugePage = size_t{2} << 20;

struct LayerPlace {
  int group = -1;
  KvLayerView view;
};

size_t head_bytes(const KvGeometry& geometry, const LayerGroup& group) {
  return kv_head_bytes(geometry.type, geometry.block_tokens, group.key_dim, group.value_dim);
}

struct Range {
  std::string_view field;
  int64_t value, min, max;
};

Result<> check_range(const Range& range) {
  if (range.value >= range.min && range.value <= range.max) return {};
  return fail(ErrorCode::kInvalidArgument, std::string(range.field), "{} is {}, allowed is {} to {}",
              range.field, range.value, range.min, range.max);
}

Result<> check_group(const LayerGroup& group) {
  TRY(check_range({"kv_heads", group.kv_heads, 1, kHeadsMax}));
  TRY(check_range({"key_dim", group.key_dim, 1, kHeadDimMax}));
  TRY(check_range({"value_dim", group.value_dim, 1, kHeadDimMax}));
  TRY(check_range({"window", group.window, 0, std::numeric_limits<int>::max()}));
  TRY(check_range({"layers", static_cast<int64_t>(group.layers.size()), 1, kLayersMax}));
  for (int layer : group.layers) TRY(check_range({"layer", layer, 0, kLayersMax - 1}));
  return {};
}

Result<> check_geometry(const KvGeometry& geometry, const std::vector<int>& block_counts) {
  TRY(check_range({"block_tokens", geometry.block_tokens, 1, kBlockTokensMax}));
  TRY(check_range({"groups", static_cast<int64_t>(geometry.groups.size()), 1, kLayerGroupsMax}));
  CHECK(block_counts.size() == geometry.groups.size());
  for (int count : block_counts)
    TRY(check_range({"block_count", count, 1, std::numeric_limits<int32_t>::max()}));
  for (const LayerGroup& group : geometry.groups) TRY(check_group(group));
  return {};
}

// Bytes of a block, nullopt when they do not fit in a size_t.
std::optional<size_t> checked_block_bytes(const KvGeometry& geometry, const LayerGroup& group) {
  const auto heads = checked_mul(group.layers.size(), static_cast<size_t>(group.kv_heads));
  if (!heads) return std::nullopt;
  return checked_mul(*heads, head_bytes(geometry, group));
}

// Anonymous address space that becomes memory where it is written.
class FrameArray {
 public:
  static Result<FrameArray> reserve(size_t bytes) {
    FrameArray frames;
    frames.size_ = round_up(bytes, kHugePage);
    void* at = mmap(nullptr, frames.size_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      return fail(ErrorCode::kResourceExhausted, "kv_bytes", "cannot reserve {} bytes for KV blocks: {}",
                  frames.size_, std::strerror(errno));
    }
    frames.base_ = static_cast<std::byte*>(at);
    // Only advice: without huge pages everything works, somewhat slower.
    (void)madvise(at, frames.size_, MADV_HUGEPAGE);
    return frames;
  }

  FrameArray() = default;
  FrameArray(FrameArray&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FrameArray& operator=(FrameArray&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~FrameArray() {
    if (base_ != nullptr) munmap(base_, size_);
  }

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  std::byte* base_ = nullptr;
  size_t size_ = 0;
};

struct GroupFrames {
  FrameArray frames;
  size_t block_bytes = 0;
  int block_count = 0;

  [[nodiscard]] std::byte* frame(BlockId block) const {
    CHECK(block.value >= 0 && block.value < block_count);
    return frames.base() + static_cast<size_t>(block.value) * block_bytes;
  }
};

}  // namespace

struct KvStore::Impl {
  KvGeometry geometry;
  std::vector<GroupFrames> groups;
  std::vector<LayerPlace> layers;  // [model layer]

  [[nodiscard]] const GroupFrames& group(int index) const {
    CHECK(index >= 0 && static_cast<size_t>(index) < groups.size());
    return groups[static_cast<size_t>(index)];
  }
  Result<> add_group(int index, int block_count);
  Result<> place_layers(int index);
};

Result<> KvStore::Impl::add_group(int index, int block_count) {
  const LayerGroup& group = geometry.groups[static_cast<size_t>(index)];
  const auto block_bytes = checked_block_bytes(geometry, group);
  const auto bytes = block_bytes ? checked_mul(*block_bytes, static_cast<size_t>(block_count)) : std::nullopt;
  if (!bytes || *bytes > std::numeric_limits<size_t>::max() / 4) {
    return fail(ErrorCode::kResourceExhausted, "kv_bytes",
                "{} KV blocks of group {} need more bytes than there are addresses", block_count, index);
  }
  GroupFrames& made = groups.emplace_back();
  made.frames = TRY(FrameArray::reserve(*bytes));
  made.block_bytes = *block_bytes;
  made.block_count = block_count;
  return place_layers(index);
}

Result<> KvStore::Impl::place_layers(int index) {
  const LayerGroup& group = geometry.groups[static_cast<size_t>(index)];
  const GroupFrames& frames = groups[static_cast<size_t>(index)];
  const size_t head_stride = head_bytes(geometry, group);
  std::byte* base = frames.frames.base();
  for (int layer : group.layers) {
    const auto slot = static_cast<size_t>(layer);
    if (layers.size() <= slot) layers.resize(slot + 1);
    if (layers[slot].group >= 0)
      return fail(ErrorCode::kInvalidArgument, "layer", "layer {} is in two layer groups", layer);
    layers[slot] = {.group = index,
                    .view = {.base = base,
                             .block_stride = frames.block_bytes,
                             .head_stride = head_stride,
                             .block_tokens = geometry.block_tokens,
                             .kv_heads = group.kv_heads,
                             .key_dim = group.key_dim,
                             .value_dim = group.value_dim,
                             .type = geometry.type}};
    base += head_stride * static_cast<size_t>(group.kv_heads);
  }
  return {};
}

KvStore::KvStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvStore::~KvStore() = default;

Result<std::unique_ptr<KvStore>> KvStore::create(KvGeometry geometry, std::vector<int> block_counts) {
  TRY(check_geometry(geometry, block_counts));
  auto impl = std::make_unique<Impl>();
  impl->geometry = std::move(geometry);
  for (size_t g = 0; g < block_counts.size(); ++g) TRY(impl->add_group(static_cast<int>(g), block_counts[g]));
  std::unique_ptr<KvStore> store(new KvStore(std::move(impl)));
#ifdef QUIRE_PARANOID
  for (size_t g = 0; g < block_counts.size(); ++g)
    for (int i = 0; i < block_counts[g]; ++i) store->poison(static_cast<int>(g), BlockId{i});
#endif
  return store;
}

const KvGeometry& KvStore::geometry() const {
  return impl_->geometry;
}

int KvStore::block_count(int group) const {
  return impl_->group(group).block_count;
}

size_t KvStore::block_bytes(int group) const {
  return impl_->group(group).block_bytes;
}

size_t KvStore::reserved_bytes() const {
  size_t bytes = 0;
  for (const GroupFrames& group : impl_->groups) bytes += group.frames.size();
  return bytes;
}

const KvLayerView& KvStore::layer(int layer) const {
  CHECK(group_of_layer(layer) >= 0);
  return impl_->layers[static_cast<size_t>(layer)].view;
}

int KvStore::group_of_layer(int layer) const {
  CHECK(layer >= 0 && static_cast<size_t>(layer) < impl_->layers.size());
  return impl_->layers[static_cast<size_t>(layer)].group;
}

void KvStore::copy_block(int group, BlockId from, BlockId to) {
  CHECK(from != to);
  const GroupFrames& frames = impl_->group(group);
  std::memcpy(frames.frame(to), frames.frame(from), frames.block_bytes);
}

void KvStore::poison(int group, BlockId block) {
  const GroupFrames& frames = impl_->group(group);
  std::memset(frames.frame(block), 0xFF, frames.block_bytes);
}

size_t kv_block_bytes(const KvGeometry& geometry, int group) {
  CHECK(group >= 0 && static_cast<size_t>(group) < geometry.groups.size());
  const LayerGroup& layers = geometry.groups[static_cast<size_t>(group)];
  return layers.layers.size() * static_cast<size_t>(layers.kv_heads) * head_bytes(geometry, layers);
}

size_t kv_token_bytes(const KvGeometry& geometry) {
  size_t bytes = 0;
  for (size_t g = 0; g < geometry.groups.size(); ++g) bytes += kv_block_bytes(geometry, static_cast<int>(g));
  return ceil_div(bytes, static_cast<size_t>(geometry.block_tokens));
}

}  // namespace quire
