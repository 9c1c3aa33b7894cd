// Models split over several GGUF files, NAME-00001-of-0000N.gguf (gguf-split of the ggml project).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "files/gguf_part.h"

namespace quire {

// What a file says about its place in a split model.
struct SplitPlace {
  int part_index = 0;                   // split.no, from 0
  int part_count = 1;                   // split.count; 1 = not split
  std::optional<int64_t> tensor_count;  // split.tensors.count, over all parts
};

// Reads split.*. Errors: kCorruptFile naming the key.
[[nodiscard]] Result<SplitPlace> split_place(const GgufPart& part, const std::string& path);

// The paths of all parts, in order; `path` alone when the model is not split. Errors: kInvalidArgument when
// `path` is not the first part (which is named), kCorruptFile when name and metadata disagree.
[[nodiscard]] Result<std::vector<std::string>> split_part_paths(const std::string& path,
                                                                const SplitPlace& place);

// A further part, and what it has to agree with.
struct SplitPartCheck {
  const std::string& path;
  int index;  // which part it has to be, from 0
  const SplitPlace& first;
};
[[nodiscard]] Result<void> check_split_part(const GgufPart& part, const SplitPartCheck& expected);

}  // namespace quire
