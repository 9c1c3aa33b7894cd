// Finds what the sequences of a step can read together: whole spans whose blocks are the same.
#pragma once

#include <vector>

#include "kernels/attention.h"

namespace quire {

// Sequences whose rows all see every token of the spans [span_begin, span_end), in the same blocks.
struct SharedSpans {
  std::vector<int> sequences;
  int span_begin = 0;
  int span_end = 0;
};

// Spans that are worth reading once. The ranges of one sequence follow each other from span 0 on; which
// sequences join may change between them (all have the system prompt, some of them the same document). Only
// sequences of at most `rows_max` rows take part. Cost: sorting the block tables.
[[nodiscard]] std::vector<SharedSpans> find_shared_spans(const std::vector<AttentionSequence>& sequences,
                                                         const AttentionShape& shape, int rows_max);

}  // namespace quire
