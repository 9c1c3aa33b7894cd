// The tensor section of a GGUF file.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "files/field_reader.h"
#include "files/gguf_file.h"

namespace quire {

// What the header says that the tensor section depends on.
struct GgufTensorSection {
  uint64_t count = 0;
  uint64_t alignment = 0;  // a power of two
};

// Reads the tensor descriptions at the cursor and finds their data behind it. Afterwards: names are unique;
// every tensor has 1 to 4 dimensions, none zero, of whole blocks; its bytes lie in the file, aligned, and
// overlap no other's. Errors: kCorruptFile; kUnsupported for a tensor type that this build cannot read.
[[nodiscard]] Result<std::vector<GgufTensor>> read_gguf_tensors(FieldReader& reader,
                                                                const GgufTensorSection& section);

}  // namespace quire
