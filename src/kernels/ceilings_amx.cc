// AMX: products of int8 tiles. Compiled with its flags: nothing here may run before available_ceilings().
#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/ceilings.h"

namespace quire {
namespace {

constexpr int kTileRows = 16;
constexpr int kTileRowBytes = 64;
constexpr int kTileBytes = kTileRows * kTileRowBytes;
constexpr int kPairs = 8;  // of two tiles on either side: 32 KiB, which stay in the L1 cache

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

struct alignas(64) Operands {
  uint8_t left[kPairs][2][kTileBytes];
  uint8_t right[kPairs][2][kTileBytes];

  // Tiles of zeros would run faster than those of weights.
  Operands() {
    uint32_t state = 1;
    for (auto* side : {&left, &right}) {
      for (auto& pair : *side) {
        for (auto& tile : pair) {
          for (uint8_t& byte : tile)
            byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
        }
      }
    }
  }
};

// Two by two tiles: each that is loaded is used twice.
int64_t int8_dot(int64_t turns) {
  static const Operands operands;
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kTileRowBytes;
    config.rows[tile] = kTileRows;
  }
  asm volatile("" : "+m"(config));  // g++ 12 does not see that the next line reads it
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (int pair = 0; pair < kPairs; ++pair) {
      _tile_loadd(4, operands.left[pair][0], kTileRowBytes);
      _tile_loadd(5, operands.left[pair][1], kTileRowBytes);
      _tile_loadd(6, operands.right[pair][0], kTileRowBytes);
      _tile_loadd(7, operands.right[pair][1], kTileRowBytes);
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(1, 4, 7);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    }
  }
  _tile_release();
  return turns * kPairs * 4 * kTileRows * kTileRows * kTileRowBytes * 2;
}

}  // namespace

constinit const CeilingTable kAmxCeilings = {.name = "amx", .int8_dot = int8_dot};

}  // namespace quire

#endif
