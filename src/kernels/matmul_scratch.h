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

inline constexpr size_t kMatmulScratchBytes = [] {
  constexpr size_t kInt = size_t{kChunkGroups} * kUnpackedGroupBytesMax;
  constexpr size_t kFloat = size_t{kFloatChunk} * 16 * sizeof(float);
  return kInt > kFloat ? kInt : kFloat;
}();

}  // namespace quire
