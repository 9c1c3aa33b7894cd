// The byte layout of a packed file; docs/formats/packed_weights.md draws it. Everything is little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "base/checked.h"
#include "files/content_hash.h"

namespace quire {

inline constexpr std::array<char, 8> kPackedMagic = {'Q', 'U', 'I', 'R', 'E', 'P', 'A', 'K'};
inline constexpr uint32_t kPackedFormatVersion = 1;
inline constexpr uint64_t kPackedPage = 4096;
// The least of a section that has more than one piece: what a reader keeps of a piece stays small beside it.
inline constexpr uint64_t kPackedPieceMin = 512;

// At byte 0. Texts are padded with zeros.
struct PackedHeader {
  std::array<char, 8> magic{};
  uint32_t format_version = 0;
  uint32_t layout_version = 0;  // of the panels
  std::array<char, 16> layout{};
  std::array<char, 64> model{};  // for people
  uint64_t file_bytes = 0;
  uint64_t section_count = 0;
  uint64_t data_offset = 0;
  uint64_t data_bytes = 0;
  ContentHash key;          // of what is packed, and the file's name
  ContentHash source_hash;  // of all bytes of the model file that went in
  ContentHash table_hash;
  ContentHash header_hash;  // of the bytes of this header before it
};
static_assert(std::is_trivially_copyable_v<PackedHeader> && sizeof(PackedHeader) == 192);

// At kPackedSeenOffset: states of model files whose contents are known to be those of `source_hash`. The one
// part that is rewritten in place; when it is torn, the contents are compared once more.
struct PackedSeen {
  std::array<ContentHash, 15> states{};  // latest first, zeros where there are no more
  ContentHash hash;
};
inline constexpr uint64_t kPackedSeenOffset = 1024;
static_assert(std::is_trivially_copyable_v<PackedSeen> && sizeof(PackedSeen) == 256);

// At kPackedPage, one a section.
struct PackedEntry {
  std::array<char, 64> name{};  // of the tensor, cut
  uint32_t type = 0;            // a TensorType, as stored
  uint32_t out = 0;             // rows; 1 for a vector
  uint32_t in = 0;
  uint32_t zero = 0;
  uint64_t offset = 0;  // from data_offset
  uint64_t bytes = 0;
  uint64_t piece_bytes = 0;  // that are hashed by themselves; the last piece of a section may be shorter
  uint64_t zeros = 0;
  ContentHash hash;  // of the hashes of its pieces
};
static_assert(std::is_trivially_copyable_v<PackedEntry> && sizeof(PackedEntry) == 128);

[[nodiscard]] constexpr uint64_t packed_data_offset(uint64_t section_count) {
  return round_up(kPackedPage + section_count * sizeof(PackedEntry), kPackedPage);
}

}  // namespace quire
