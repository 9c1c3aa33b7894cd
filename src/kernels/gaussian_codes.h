// Codes of 4 and 5 bits for values that are spread like a Gaussian, as rotation leaves those of a row: levels
// lie close where values are many. Codes of equal steps lose a fifth (4 bits) or two fifths (5 bits) more.
//
// A level is scale * (a whole or half number), with either sign. The numbers are those of Lloyd and Max for a
// standard deviation of 41.9 or 37.5, rounded so that all of them, with their signs, fit a byte.
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
    16, 37.5f, 2.5f, {0, 5, 10, 15, 20, 26, 31, 37, 43, 50, 57, 65, 74, 85, 99, 120}};
// 4 bits: codes 0 … 7 are negative, 8 … 15 positive, ascending.
inline constexpr GaussianLevels kValueLevels = {8, 41.9f, 5.5f, {0, 11, 22, 34, 47, 62, 81, 109}};

// For reading, levels are bytes, from which a multiple of the scale is taken off: byte - middle.
struct LevelBytes {
  std::array<uint8_t, 16> bytes = {};
  float middle = 0;
};
// Of the magnitudes of K; a negative level's byte is the complement of the positive one's.
inline constexpr LevelBytes kKeyBytes = [] {
  LevelBytes levels{.middle = 127.5f};
  for (int i = 0; i < 16; ++i)
    levels.bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(levels.middle + kKeyLevels.at(i));
  return levels;
}();
// Of the codes of V.
inline constexpr LevelBytes kValueBytes = [] {
  LevelBytes levels{.middle = kValueLevels.largest()};
  for (int i = 0; i < 8; ++i) {
    levels.bytes[static_cast<size_t>(8 + i)] = static_cast<uint8_t>(levels.middle + kValueLevels.at(i));
    levels.bytes[static_cast<size_t>(7 - i)] = static_cast<uint8_t>(levels.middle - kValueLevels.at(i));
  }
  return levels;
}();

// Scales of one byte: 5 bits of exponent, 3 of mantissa, (8 + m) * 2^(e - 27); 0 is zero and 255 NaN. A step
// is 6 to 12 percent, which a scale that was chosen among neighbours hardly shows.
inline constexpr uint8_t kScaleNan = 255;
inline constexpr int kScaleMax = 254;

}  // namespace quire
