// One GGUF file by itself: a whole model, or one part of a split one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "files/gguf_file.h"
#include "files/gguf_metadata.h"

namespace quire {

struct GgufPart {
  uint32_t version = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;
};

// Parses all of `bytes`, which outlive the result. `file` names the file in errors.
[[nodiscard]] Result<GgufPart> read_gguf_part(std::span<const std::byte> bytes, std::string_view file);

}  // namespace quire
