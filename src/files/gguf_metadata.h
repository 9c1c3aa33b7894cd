// The key-value section of a GGUF file.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "files/field_reader.h"
#include "files/gguf_file.h"

namespace quire {

// All pairs in file order. Invariants: (1) no key is empty or appears twice; (2) value_offsets and by_key
// have one entry a pair. find() is O(log pairs).
struct GgufMetadata {
  struct Entry {
    const GgufValue* value;
    uint64_t offset;  // of the value in the file
  };

  std::vector<std::pair<std::string_view, GgufValue>> pairs;
  std::vector<uint64_t> value_offsets;
  std::vector<uint32_t> by_key;  // indices of pairs, ordered by key

  // nullptr value when absent.
  [[nodiscard]] Entry find(std::string_view key) const;
};

// Reads `count` pairs at the cursor. Errors: kCorruptFile.
[[nodiscard]] Result<GgufMetadata> read_gguf_metadata(FieldReader& reader, uint64_t count);

}  // namespace quire
