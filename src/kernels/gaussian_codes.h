// Codes of 4 and 5 bits for values that are spread like a Gaussian, as rotation leaves those of a row: levels
// lie close where values are many. Codes of equal steps lose a fifth (4 bits) or two fifths (5 bits) more.
//
// A level is scale * (a whole or half number), with either sign. The numbers are those of Lloyd and Max for a
// standard deviation of 41.9 or 75, rounded so that the distances from the smallest fit a byte.
#pragma once

#include <array>
#include <cstdint>

namespace quire {

struct GaussianLevels {
  int count = 0;                       // magnitudes
  float deviation = 0;                 // of what the levels are made for
  float least = 0;                     // the smallest magnitude
  std::array<uint8_t, 16> above = {};  // what each magnitude is more than that, ascending

  [[nodiscard]] constexpr float at(int index) const {
    return least + static_cast<float>(above[static_cast<size_t>(index)]);
  }
  [[nodiscard]] constexpr float largest() const { return at(count - 1); }
};

// 5 bits: a sign and one of 16 magnitudes.
inline constexpr GaussianLevels kKeyLevels = {
    16, 75.0f, 5.0f, {0, 10, 20, 30, 40, 51, 62, 74, 86, 99, 113, 129, 147, 169, 197, 240}};
// 4 bits: codes 0 … 7 are negative, 8 … 15 positive, ascending.
inline constexpr GaussianLevels kValueLevels = {8, 41.9f, 5.5f, {0, 11, 22, 34, 47, 62, 81, 109}};

// Distances of the 16 signed levels from the lowest, which is -largest().
[[nodiscard]] constexpr std::array<uint8_t, 16> above_lowest(const GaussianLevels& levels) {
  std::array<uint8_t, 16> all = {};
  for (int i = 0; i < 8; ++i) {
    all[static_cast<size_t>(8 + i)] = static_cast<uint8_t>(levels.largest() + levels.at(i));
    all[static_cast<size_t>(7 - i)] = static_cast<uint8_t>(levels.largest() - levels.at(i));
  }
  return all;
}
inline constexpr std::array<uint8_t, 16> kValueLevelsAboveLowest = above_lowest(kValueLevels);

// Scales of one byte: 5 bits of exponent, 3 of mantissa, (8 + m) * 2^(e - 27); 0 is zero and 255 NaN. A step
// is 6 to 12 percent, which a scale that was chosen among neighbours hardly shows.
inline constexpr uint8_t kScaleNan = 255;
inline constexpr int kScaleMax = 254;

}  // namespace quire
