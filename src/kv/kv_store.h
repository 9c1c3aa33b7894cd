// The bytes of the blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "core/kv_geometry.h"
#include "kernels/attention.h"

namespace quire {

// One frame array per layer group. Owned by the engine; the step's threads write disjoint slices through the
// views. Frames are reserved once, at start, and touched when they are first written.
// Invariants: (1) a frame is one contiguous run of block_bytes(group), layers in group order; (2) frames
// never move.
class KvStore {
 public:
  // block_counts: [group], each >= 1. Errors: kInvalidArgument (a geometry or count out of range, named),
  // kResourceExhausted with the bytes asked for.
  static Result<std::unique_ptr<KvStore>> create(KvGeometry geometry, std::vector<int> block_counts);
  ~KvStore();

  [[nodiscard]] const KvGeometry& geometry() const;
  [[nodiscard]] int block_count(int group) const;
  [[nodiscard]] size_t block_bytes(int group) const;
  // The view of model layer `layer` (in its group).
  [[nodiscard]] const KvLayerView& layer(int layer) const;
  [[nodiscard]] int group_of_layer(int layer) const;
  // Bytes reserved for the frames of all groups; resident are only those that were written.
  [[nodiscard]] size_t reserved_bytes() const;
  // Copies all layers of a block: fork, partial hit. The two differ.
  void copy_block(int group, BlockId from, BlockId to);
  // Fills a frame with 0xFF bytes, NaN in every codec of floats, so that a row that is read before it is
  // written shows. In paranoid builds frames start so, and the engine poisons what a step leases.
  void poison(int group, BlockId block);

 private:
  struct Impl;
  explicit KvStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Bytes of one block of `group`, without a store: for memory plans.
[[nodiscard]] size_t kv_block_bytes(const KvGeometry& geometry, int group);
// Bytes that one token needs over all groups (full attention; windows hold less).
[[nodiscard]] size_t kv_token_bytes(const KvGeometry& geometry);

}  // namespace quire
