// Traces of requests as they are published.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/request_trace.h"

namespace quire {

// Reads one of two formats, told apart by their first byte:
//   Azure LLM inference traces (2023): CSV with the header TIMESTAMP,ContextTokens,GeneratedTokens, time as
//     "2023-11-16 18:15:46.6805900"; every prompt is like no other.
//   Mooncake (FAST '25): one JSON object a line with timestamp (ms), input_length, output_length, hash_ids;
//     an id stands for 512 tokens and all before them. Further members are passed over.
// Errors: those of reading a file; kCorruptFile naming file, line, field, value and limit.
[[nodiscard]] Result<RequestTrace> read_trace_file(const std::string& path);

// `name` stands for the text in messages.
[[nodiscard]] Result<RequestTrace> parse_trace(std::string_view text, const std::string& name);

}  // namespace quire
