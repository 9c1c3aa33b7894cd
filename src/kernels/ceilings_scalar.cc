// What the compiler makes of plain loops, without flags: the ceiling of the reference kernels.
#include <array>
#include <cstring>

#include "kernels/ceilings.h"

namespace quire {
namespace {

constexpr int kLine = 64;
constexpr size_t kValues = 1024;  // an operand, in the L1 cache

// The compiler must take the memory for new values.
void hide(void* memory) {
  asm volatile("" : "+r"(memory) : : "memory");
}

uint32_t read(std::span<const std::byte> data) {
  std::array<uint32_t, kLine / sizeof(uint32_t)> sums{};
  for (size_t at = 0; at < data.size(); at += kLine) {
    decltype(sums) line;
    std::memcpy(line.data(), data.data() + at, kLine);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += line[i];
  }
  uint32_t sum = 0;
  for (uint32_t part : sums) sum += part;
  return sum;
}

int64_t float_fma(int64_t turns) {
  std::array<float, 32> chains{};
  hide(chains.data());
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (float& chain : chains) chain = chain * 0.75f + 0.5f;
  }
  hide(chains.data());
  return turns * static_cast<int64_t>(chains.size()) * 2;
}

template <class Left, class Right>
int64_t dot(int64_t turns) {
  std::array<Left, kValues> left;
  std::array<Right, kValues> right;
  left.fill(3);
  right.fill(5);
  for (int64_t turn = 0; turn < turns; ++turn) {
    hide(left.data());
    hide(right.data());
    int32_t sum = 0;
    for (size_t i = 0; i < kValues; ++i) sum += int32_t{left[i]} * int32_t{right[i]};
    hide(&sum);
  }
  return turns * static_cast<int64_t>(kValues) * 2;
}

}  // namespace

constinit const CeilingTable kScalarCeilings = {.name = "scalar",
                                                .read_memory = read,
                                                .read_cache = read,
                                                .float_fma = float_fma,
                                                .int8_dot = dot<uint8_t, int8_t>,
                                                .int8_dot_sum32 = dot<uint8_t, int8_t>,
                                                .int16_dot = dot<int16_t, int16_t>};

}  // namespace quire
