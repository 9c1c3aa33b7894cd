// How the products divide long rows, and the thread's scratch that follows from it.
#pragma once

#include <cstddef>

namespace quire {

// Int8 activations: groups that are unpacked at a time; the codes stay in the L1 cache.
inline constexpr int kChunkGroups = 16;
// A group's scales and multipliers in the scratch: scale, min, pairs, min_pairs.
inline constexpr int kUnpackedScaleBytes = 4 * 64;
inline constexpr int kUnpackedPlaneBytes = 512;
inline constexpr int kUnpackedGroupBytesMax = 2 * kUnpackedPlaneBytes + kUnpackedScaleBytes;

// Float activations: inputs that are dequantised at a time, [input][16 rows].
inline constexpr int kFloatChunk = 256;

// How far ahead streamed weights are fetched into the L2 cache.
inline constexpr int kPrefetchBytes = 4096;

// Rows that pass over all panels before the next rows do: their activations stay in the L2 cache, and
// unpacking the weights again for the next rows costs little beside them.
inline constexpr int kRowBlockBytes = 256 * 1024;
inline constexpr int kRowBlockMin = 32;

// Rows in a block when `rows` of `row_bytes` are shared evenly; a multiple of `tile_rows`.
[[nodiscard]] constexpr int row_block(int rows, size_t row_bytes, int tile_rows) {
  const auto fitting = static_cast<int>(kRowBlockBytes / row_bytes);
  const int most = fitting < kRowBlockMin ? kRowBlockMin : fitting;
  const int blocks = (rows + most - 1) / most;
  const int even = (rows + blocks - 1) / blocks;
  return (even + tile_rows - 1) / tile_rows * tile_rows;
}

inline constexpr size_t kMatmulScratchBytes = [] {
  constexpr size_t kInt = size_t{kChunkGroups} * kUnpackedGroupBytesMax;
  constexpr size_t kFloat = size_t{kFloatChunk} * 16 * sizeof(float);
  return kInt > kFloat ? kInt : kFloat;
}();

}  // namespace quire
