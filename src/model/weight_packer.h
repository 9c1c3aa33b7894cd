// Tensors of a model file to packed weights: in memory, or in a file of the cache.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "files/content_hash.h"
#include "files/gguf_file.h"
#include "files/packed_file.h"
#include "files/packed_writer.h"
#include "kernels/packed_matrix.h"

namespace quire {

inline constexpr size_t kWeightAlignment = 64;  // of every packed tensor

// One tensor's way from the file to its place; exactly one of matrix and vector is set.
struct WeightPlacement {
  const GgufTensor* tensor = nullptr;
  size_t offset = 0;  // of the packed bytes in all packed bytes
  PackedMatrix* matrix = nullptr;
  const float** vector = nullptr;

  [[nodiscard]] size_t bytes() const;
};

// Works through the tensors with all threads of the pool, a megabyte at a time: what is in memory twice is
// one such piece a thread. Pages of the file leave memory as they are done. Lives while a model is loaded.
class WeightPacker {
 public:
  // All outlive the packer.
  WeightPacker(const GgufFile& file, std::span<const WeightPlacement> placements, ThreadPool& pool);

  // What a packed file of these tensors has to be. Its key covers names, types, shapes and places, and the
  // first bytes of each tensor: enough to tell models apart, not enough to trust (source_hash()).
  [[nodiscard]] PackedPlan plan() const;

  // `memory` has room for all placements.
  void pack(std::byte* memory) const;
  // The same into a file, with the hashes of both sides; `seen` stands for the model file's state.
  [[nodiscard]] Result<PackedFile> pack(PackedWriter writer, const ContentHash& seen) const;
  // Of every byte that packing reads.
  [[nodiscard]] ContentHash source_hash() const;

 private:
  // Panels [panel_begin, panel_end) of a matrix, or a whole vector.
  struct Piece {
    const WeightPlacement* placement = nullptr;
    int panel_begin = 0;
    int panel_end = 0;

    [[nodiscard]] std::span<const std::byte> source() const;
    [[nodiscard]] size_t offset() const;
    [[nodiscard]] size_t bytes() const;
  };
  struct PieceHashes {
    std::vector<ContentHash> source, packed;  // [pieces]
  };

  static void pack_piece(const Piece& piece, std::byte* destination);
  void release(const Piece& piece) const;
  void release_all() const;
  [[nodiscard]] Result<> write_pieces(const PackedWriter& writer, PieceHashes& hashes) const;

  const GgufFile& file_;
  std::span<const WeightPlacement> placements_;
  ThreadPool& pool_;
  std::vector<Piece> pieces_;  // in the order of the placements
};

}  // namespace quire
