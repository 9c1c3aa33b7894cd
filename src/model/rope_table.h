// The rotations of a step's rows.
#pragma once

#include <vector>

#include "core/ids.h"
#include "core/model_spec.h"
#include "kernels/rope.h"

namespace quire {

// The distinct rotations of a model, and where their angles lie in a row of [half_dims()] cosines (sines
// alike). Immutable; owned by the transformer.
class RopeTable {
 public:
  explicit RopeTable(const ModelSpec& spec);

  // dims / 2 summed over the distinct rotations: the width of a row of angles.
  [[nodiscard]] int half_dims() const { return half_dims_; }
  // Where layer `layer` finds its angles in a row.
  [[nodiscard]] int offset(int layer) const { return offset_of_layer_[layer]; }

  // The rotation of layer `layer`; no frequencies when it has none.
  [[nodiscard]] const RopeFrequencies& rotation(int layer) const {
    return rotations_[rotation_of_layer_[layer]];
  }

  // cosines, sines: [half_dims()].
  void fill_row(Position position, float* cosines, float* sines) const;

 private:
  std::vector<RopeFrequencies> rotations_;
  std::vector<int> offsets_;          // [rotation]
  std::vector<int> offset_of_layer_;  // [layer]
  std::vector<int> rotation_of_layer_;
  int half_dims_ = 0;
};

}  // namespace quire
