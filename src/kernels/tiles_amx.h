// AMX's tile registers, as matmul_tile_body.h uses them. Only isa_avx512.cc may include this file.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/simd_inline.h"

namespace quire {

// Register 0: dots; 1: activations; 2: codes.
struct AmxTiles {
  static constexpr int kRows = 16;

  // Configures the thread's registers; costs some hundred cycles.
  class Use {
   public:
    Use() {
      Palette palette;
      palette.shape(0, kRows, 64);
      palette.shape(1, kRows, 32);
      palette.shape(2, 8, 64);
      asm volatile("" : "+m"(palette));  // g++ 12 does not see that the next line reads it
      _tile_loadconfig(&palette);
    }
    ~Use() { _tile_release(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    struct alignas(64) Palette {
      uint8_t id = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};

      void shape(int tile, int row_count, int bytes) {
        rows[tile] = static_cast<uint8_t>(row_count);
        row_bytes[tile] = static_cast<uint16_t>(bytes);
      }
    };
  };

  // out [16 rows][16] = activations [16 rows][32], signed, times codes [8 quads][16][4], unsigned.
  KERNEL_INLINE void dots(const int8_t* activations, const std::byte* codes, int32_t* out) {
    asm volatile("" ::: "memory");  // g++ 12 does not see what the tile loads read
    _tile_loadd(1, activations, 32);
    _tile_loadd(2, codes, 64);
    _tile_zero(0);
    _tile_dpbsud(0, 1, 2);
    _tile_stored(0, out, 64);
    asm volatile("" ::: "memory");
  }
};

}  // namespace quire
