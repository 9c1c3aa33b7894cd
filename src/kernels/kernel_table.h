// The kernels of one instruction set, chosen once at start. Upper floors see only this header,
// packed_matrix.h and attention.h.
//
// The determinism duty: every output element depends on its own row and its own weights only, in one order of
// operations that is the same for 1 row and for 512, for any share of panels and on any thread. All ISAs
// follow the same order with the same fused multiply-adds, so they agree bit for bit; the scalar table is the
// reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/model_spec.h"
#include "kernels/attention.h"
#include "kernels/packed_matrix.h"

namespace quire {

// Rows of activations that lie side by side: a product that takes some of them at a time reads their codes of
// a group from one place, and every number of rows that a table takes at a time divides it.
inline constexpr int kActivationTileRows = 48;

// Where one row's groups lie in activations of `rows` rows, counted in groups: [tile][group][row of the
// tile]. The last tile has the rows that are left.
struct GroupPlaces {
  size_t first = 0;
  size_t stride = 0;

  [[nodiscard]] constexpr size_t operator[](int group) const {
    return first + static_cast<size_t>(group) * stride;
  }
  [[nodiscard]] static constexpr GroupPlaces of(int rows, int in, int row) {
    const int begin = row / kActivationTileRows * kActivationTileRows;
    const int tile_rows = rows - begin < kActivationTileRows ? rows - begin : kActivationTileRows;
    const size_t before = static_cast<size_t>(begin) * static_cast<size_t>(in / kGroup);
    return {before + static_cast<size_t>(row - begin), static_cast<size_t>(tile_rows)};
  }
};

// What weights with a zero point or a minimum need to know of 32 activations.
struct GroupSums {
  int16_t low = 0;   // sum of codes 0 … 15
  int16_t high = 0;  // sum of codes 16 … 31
  float scaled = 0;  // scale * (low + high)
};

// Activations [row, in], each group of 32 inputs with one scale: x ≈ scale * code, code in [-127, 127].
// With two terms, x is the sum of both: the second stands for what the first lost, in the few groups that
// have one. Row r's second term is row `rows + r`; a group without one has scale 0 there, whatever its codes
// are, and costs next to nothing. A view of the model's scratch memory. Every array is 64-byte aligned.
struct QuantizedRows {
  int rows = 0;
  int in = 0;                 // a multiple of 32
  int8_t* codes = nullptr;    // [term][place of the group][32]
  float* scales = nullptr;    // [term][place of the group]
  GroupSums* sums = nullptr;  // likewise
  int terms = 1;              // 1 or 2

  // Groups of one term of all rows.
  [[nodiscard]] constexpr size_t term_groups() const {
    return static_cast<size_t>(rows) * static_cast<size_t>(in / kGroup);
  }
  // `row` in [0, 2 * rows).
  [[nodiscard]] constexpr GroupPlaces places(int row) const {
    GroupPlaces places = GroupPlaces::of(rows, in, row < rows ? row : row - rows);
    if (row >= rows) places.first += term_groups();
    return places;
  }
};

// What weights with a zero point or a minimum need to know of 32 activations of 14 bits.
struct WideSums {
  int32_t low = 0;   // sum of codes 0 … 15
  int32_t high = 0;  // sum of codes 16 … 31
};

inline constexpr int kWideCodeMax = 8191;  // the most with which the dot of every type fits 32 bits

// Activations [row, in], each group of 32 inputs with one scale: x ≈ scale * code, |code| <= kWideCodeMax.
// Twice the work of int8. The codes of inputs 0, 1, 2, 3 of each four lie in the order 0, 2, 1, 3. A view of
// the model's scratch memory. Every array is 64-byte aligned.
struct WideRows {
  int rows = 0;
  int in = 0;                // a multiple of 32
  int16_t* codes = nullptr;  // [place of the group][32]
  float* scales = nullptr;   // [place of the group]
  WideSums* sums = nullptr;  // likewise

  [[nodiscard]] constexpr GroupPlaces places(int row) const { return GroupPlaces::of(rows, in, row); }
};

// Float activations [row, stride] of which `in` count.
struct FloatRows {
  int rows = 0;
  int in = 0;
  size_t stride = 0;
  const float* values = nullptr;
};

// Where a product goes: out[row * stride + output].
struct ProductRows {
  float* values = nullptr;
  size_t stride = 0;
};

struct KernelTable {
  std::string_view name;

  // y = W x with int8 activations, for panels [panel_begin, panel_end) and all rows of x. W holds integer
  // codes (has_codes(w.type)) and w.in == x.in. Per output, groups of 32 inputs ascending: acc =
  // fma(float(dot), w_scale * a_scale, acc), then, for types with a minimum, acc = fma(w_min, sums.scaled,
  // acc). dot = sum of (code - zero point) * activation code, an exact integer. Types with sub-groups of 16
  // have integer multipliers: dot = m_low * dot_low + m_high * dot_high, and with a minimum acc =
  // fma(float(n_low * sums.low + n_high * sums.high), w_min * a_scale, acc). `scratch`: at least
  // matmul_scratch_bytes(in) bytes of the calling thread's own, 64-byte aligned.
  void (*matmul)(const PackedMatrix& w, const QuantizedRows& x, int panel_begin, int panel_end, ProductRows y,
                 std::byte* scratch);

  // The same with 14-bit activations; sums.scaled is scale * float(low + high).
  void (*matmul_wide)(const PackedMatrix& w, const WideRows& x, int panel_begin, int panel_end,
                      ProductRows y);

  // The same with float32 activations (the exact mode, and float weights): acc = fma(w_k, x_k, acc), k
  // ascending.
  void (*matmul_float)(const PackedMatrix& w, const FloatRows& x, int panel_begin, int panel_end,
                       ProductRows y, std::byte* scratch);

  // One row of W as float32 (embedding look-up), the bits of dequantize_row; destination: [in].
  void (*unpack_row)(const PackedMatrix& w, int row, float* destination);

  // Quantises x [q.in] into row `row` of q. Per group: scale = absmax / 127, code = x * (127 / absmax)
  // rounded to nearest even. A group below 1e-35 has scale 0. A group with an infinity or NaN has that as
  // scale and zero codes, so every product with it becomes NaN.
  void (*quantize_row)(const float* x, int row, const QuantizedRows& q);

  // The same to 14 bits: scale = absmax / kWideCodeMax, code = x * (kWideCodeMax / absmax) rounded to
  // even. A group below 1e-34 has scale 0.
  void (*quantize_row_wide)(const float* x, int row, const WideRows& q);

  // y = x / sqrt(mean(x²) + epsilon) * w over n values; w may be nullptr (all ones). x == y is allowed.
  void (*rms_norm)(const float* x, const float* w, float epsilon, int n, float* y);

  // y += x over n values.
  void (*add)(const float* x, int n, float* y);

  // Rotates the first `dims` values of one head in place; cos, sin: [dims / 2] from rope_angles().
  void (*rope)(RopeSpec::Pairing pairing, int dims, const float* cos, const float* sin, float* head);

  // y = activation(gate) * up over n values; y may be gate.
  void (*gated)(Activation activation, const float* gate, const float* up, int n, float* y);

  // x = cap * tanh(x / cap) over n values.
  void (*softcap)(float cap, int n, float* x);

  // Paged attention; see attention.h.
  AttentionKernels attention;
};

[[nodiscard]] size_t matmul_scratch_bytes(int in);

// The tables that this build holds and this processor can run; the later extend the earlier. "scalar" is
// always there.
[[nodiscard]] std::span<const KernelTable* const> available_kernels();
// nullptr when `name` is unknown or cannot run here; "" = the best, which the first such call may have to
// measure (see faster_table.h).
[[nodiscard]] const KernelTable* find_kernels(std::string_view name);

}  // namespace quire
