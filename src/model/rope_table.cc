#include "model/rope_table.h"

#include <algorithm>

namespace quire {
namespace {

bool same_angles(const RopeSpec& a, const RopeSpec& b) {
  return a.dims == b.dims && a.freq_base == b.freq_base && a.position_scale == b.position_scale &&
         a.freq_divisors == b.freq_divisors;
}

}  // namespace

RopeTable::RopeTable(const ModelSpec& spec) {
  std::vector<const RopeSpec*> distinct;
  for (const LayerSpec& layer : spec.layers) {
    auto known =
        std::ranges::find_if(distinct, [&](const RopeSpec* rope) { return same_angles(*rope, layer.rope); });
    if (known == distinct.end()) {
      distinct.push_back(&layer.rope);
      known = std::prev(distinct.end());
      rotations_.push_back(layer.rope.dims > 0 ? make_rope_frequencies(layer.rope) : RopeFrequencies{});
      offsets_.push_back(half_dims_);
      half_dims_ += layer.rope.dims / 2;
    }
    offset_of_layer_.push_back(offsets_[known - distinct.begin()]);
    rotation_of_layer_.push_back(static_cast<int>(known - distinct.begin()));
  }
}

void RopeTable::fill_row(Position position, float* cosines, float* sines) const {
  for (size_t index = 0; index < rotations_.size(); ++index) {
    if (rotations_[index].dims == 0) continue;
    rope_angles(rotations_[index], position, cosines + offsets_[index], sines + offsets_[index]);
  }
}

}  // namespace quire
