// The weights of a model, packed for the kernels: one run of bytes, in memory or mapped from a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "core/model_spec.h"
#include "files/gguf_file.h"
#include "files/packed_cache.h"
#include "files/packed_file.h"
#include "kernels/packed_matrix.h"
#include "model/page_arena.h"

namespace quire {

// A weight matrix W [out, in] and what is added to its product.
struct Projection {
  PackedMatrix matrix;
  const float* bias = nullptr;  // [out]; nullptr = none
};

// Vectors are float32; nullptr where the spec has no such weight.
struct LayerWeights {
  const float* attention_norm = nullptr;  // [width]
  Projection query, key, value;
  const float* query_norm = nullptr;  // [head_dim]
  const float* key_norm = nullptr;    // [head_dim]
  Projection attention_output;
  const float* post_attention_norm = nullptr;  // [width]
  const float* ffn_norm = nullptr;             // [width]
  Projection gate, up, down;
  const float* post_ffn_norm = nullptr;  // [width]
};

// How the packed bytes came to be there.
enum class WeightOrigin : uint8_t {
  kMemory,   // packed into memory of this process
  kNewFile,  // packed into a file of the cache, and mapped from there
  kFile,     // mapped from a file that was there
};

// Owned by the model; immutable after load, any thread reads it.
// Invariants: (1) every pointer lies in the arena or in the packed file, never partly in both; (2) matrices
// are 64-byte aligned; (3) with tied embeddings `head` and `embedding` are the same bytes.
class Weights {
 public:
  // Maps the packed weights from the cache. Where they are not there, packs them into the cache and maps
  // that; where that cannot be, packs them into memory. Works with all threads of `pool`, a megabyte at a
  // time; the pages of the file leave memory as they are done, so that there are never two copies. What goes
  // wrong with the cache is a notice. Errors: kCorruptFile for a missing or misshapen tensor,
  // kResourceExhausted.
  static Result<Weights> load(const GgufFile& file, const ModelSpec& spec, ThreadPool& pool,
                              const PackedCacheOptions& cache = {});

  [[nodiscard]] const PackedMatrix& embedding() const { return embedding_; }
  [[nodiscard]] const Projection& head() const { return head_; }
  [[nodiscard]] const float* final_norm() const { return final_norm_; }
  [[nodiscard]] const LayerWeights& layer(int index) const { return layers_[index]; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] WeightOrigin origin() const { return origin_; }
  // Why the cache did not serve, in a line; empty where nothing is wrong.
  [[nodiscard]] const std::string& notice() const { return notice_; }

 private:
  friend class WeightLoader;
  PageArena arena_;
  std::optional<PackedFile> file_;
  uint64_t bytes_ = 0;
  WeightOrigin origin_ = WeightOrigin::kMemory;
  std::string notice_;
  PackedMatrix embedding_;
  Projection head_;
  const float* final_norm_ = nullptr;
  std::vector<LayerWeights> layers_;
};

}  // namespace quire
