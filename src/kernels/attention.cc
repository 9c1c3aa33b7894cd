#include "kernels/attention.h"

#include <memory>
#include <new>

#include "base/check.h"
#include "base/checked.h"

namespace quire {

size_t kv_head_bytes(KvType type, int block_tokens, int key_dim, int value_dim) {
  return kv_layout(type, block_tokens, key_dim, value_dim).bytes;
}

size_t attention_slot_floats(int value_dim) {
  return kSlotHeaderFloats + static_cast<size_t>(round_up(value_dim, kSlotHeaderFloats));
}

size_t attention_partial_floats(const AttentionPlan& plan, int value_dim) {
  return static_cast<size_t>(plan.partial_slots) * attention_slot_floats(value_dim);
}

float* attention_scratch(size_t floats) {
  struct Free {
    void operator()(float* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<float, Free> buffer;
  thread_local size_t capacity = 0;
  if (floats > capacity) {
    buffer.reset(static_cast<float*>(::operator new(floats * sizeof(float), std::align_val_t{64})));
    capacity = floats;
  }
  return buffer.get();
}

}  // namespace quire
