#include "cli/trace_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/data_paths.h"

namespace quire {
namespace {

constexpr const char* kAzure =
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 23:59:59.5000000,374,44\r\n"
    "2023-11-17 00:00:01.2500000,3,1\r\n"
    "2023-11-17 00:00:01.2500000,14050,1000";

TEST(TraceFile, ReadsAzureAcrossMidnight) {
  const RequestTrace trace = parse_trace(kAzure, "a.csv").value();
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_EQ(trace.requests[0].arrival_ms, 0);
  EXPECT_DOUBLE_EQ(trace.requests[1].arrival_ms, 1750);
  EXPECT_EQ(trace.requests[0].prompt_tokens, 374);
  EXPECT_EQ(trace.requests[0].output_tokens, 44);
  EXPECT_EQ(trace.requests[2].prompt_tokens, 14050);
  EXPECT_TRUE(trace.requests[2].block_ids.empty());
}

TEST(TraceFile, ReadsMooncake) {
  const RequestTrace trace =
      parse_trace(
          "{\"timestamp\": 100, \"input_length\": 513, \"output_length\": 7, \"hash_ids\": [5, 9], \"type\": "
          "\"x\"}\n"
          "\n"
          "{\"timestamp\": 100.5, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [5]}\n",
          "m.jsonl")
          .value();
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.block_tokens, 512);
  EXPECT_EQ(trace.requests[0].block_ids, (std::vector<int64_t>{5, 9}));
  EXPECT_EQ(trace.requests[0].prompt_tokens, 513);
  EXPECT_EQ(trace.requests[1].output_tokens, 1);
  EXPECT_DOUBLE_EQ(trace.requests[1].arrival_ms, 0.5);
}

struct Malformed {
  std::string text;
  const char* place;
  const char* field;
  const char* told;
};

TEST(TraceFile, NamesFileLineFieldAndValue) {
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const std::string good = "2023-11-16 18:15:46.6,1,1\n";
  const auto line = [](const char* time, const char* input, const char* output, const char* ids) {
    return fmt::format(
        "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, \"hash_ids\": {}}}\n", time, input,
        output, ids);
  };
  const Malformed cases[] = {
      {"", "t:", "", "no request"},
      {header, "t:", "", "no request"},
      {"time,in,out\n1,2,3\n", "t:1:", "header", "time,in,out"},
      {header + good + "2023-11-16 18:15:46.6,x,1\n", "t:3:", "ContextTokens", "'x'"},
      {header + good + "2023-11-16 18:15:46.6,1,0\n", "t:3:", "GeneratedTokens", "[1, 16777216]"},
      {header + good + "2023-11-16 18:15:46.6,99999999,1\n", "t:3:", "ContextTokens", "99999999"},
      {header + "2023-13-16 18:15:46.6,1,1\n", "t:2:", "TIMESTAMP", "2023-13-16"},
      {header + "2023-11-16 24:15:46,1,1\n", "t:2:", "TIMESTAMP", "24:15"},
      {header + "2023-11-16 18:15:46.6x,1,1\n", "t:2:", "TIMESTAMP", "46.6x"},
      {header + "soon,1,1\n", "t:2:", "TIMESTAMP", "'soon'"},
      {header + good + "2023-11-16 18:15:46.5,1,1\n", "t:3:", "TIMESTAMP", "before the line above"},
      {header + "2023-11-16 18:15:46.5,1\n", "t:2:", "ContextTokens", "cells"},
      {header + "2023-11-16 18:15:46.5,1,1,1\n", "t:2:", "GeneratedTokens", "cells"},
      {"{\"timestamp\": 0}\n", "t:1:", "input_length", "missing"},
      {"{nonsense\n", "t:1:", "line", "nonsense"},
      {line("0", "1", "1", "[1]") + "[]\n", "t:2:", "line", "[]"},
      {line("-1", "1", "1", "[1]"), "t:1:", "timestamp", "-1"},
      {line("\"x\"", "1", "1", "[1]"), "t:1:", "timestamp", "\"x\""},
      {line("0", "1.5", "1", "[1]"), "t:1:", "input_length", "1.5"},
      {line("0", "0", "1", "[1]"), "t:1:", "input_length", "[1, 16777216]"},
      {line("0", "1", "-3", "[1]"), "t:1:", "output_length", "-3"},
      {line("0", "1", "1", "7"), "t:1:", "hash_ids", "7"},
      {line("0", "1", "1", "[\"a\"]"), "t:1:", "hash_ids", "\"a\""},
      {line("0", "513", "1", "[1]"), "t:1:", "hash_ids", "must be 2"},
      {line("5", "1", "1", "[1]") + line("4", "1", "1", "[1]"), "t:2:", "timestamp", "before the line above"},
  };
  for (const Malformed& one : cases) {
    const auto trace = parse_trace(one.text, "t");
    ASSERT_FALSE(trace) << one.text;
    EXPECT_EQ(trace.error().code, ErrorCode::kCorruptFile);
    EXPECT_EQ(trace.error().field, one.field) << one.text;
    EXPECT_TRUE(trace.error().message.starts_with(one.place)) << trace.error().message;
    EXPECT_NE(trace.error().message.find(one.told), std::string::npos) << trace.error().message;
  }
}

TEST(TraceFile, SaysWhichFileIsMissing) {
  const auto trace = read_trace_file("/nonexistent/trace.csv");
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, ErrorCode::kNotFound);
  EXPECT_NE(trace.error().message.find("/nonexistent/trace.csv"), std::string::npos);
}

// Counts as an independent reader finds them.
TEST(TraceFile, ReadsThePublishedTraces) {
  struct Published {
    const char* file;
    size_t requests;
    int64_t prompt_tokens, output_tokens;
    double last_ms;
  };
  const Published all[] = {
      {"azure-2023/AzureLLMInferenceTrace_conv.csv", 19366, 22361870, 4088665, 3501721.9437},
      {"azure-2023/AzureLLMInferenceTrace_code.csv", 8819, 18059974, 245896, 3435948.056},
      {"mooncake-fast25/conversation_trace-first6000.jsonl", 6000, 76643649, 2081764, 1872000},
      {"mooncake-fast25/synthetic_trace.jsonl", 3993, 61194628, 595432, 1022025},
  };
  for (const Published& one : all) {
    const std::string path = test::shared_path(std::string("traces/") + one.file);
    SKIP_WITHOUT(path);
    const auto trace = read_trace_file(path);
    ASSERT_TRUE(trace) << trace.error().message;
    int64_t prompt_tokens = 0, output_tokens = 0;
    for (const TracedRequest& request : trace->requests) {
      prompt_tokens += request.prompt_tokens;
      output_tokens += request.output_tokens;
    }
    EXPECT_EQ(trace->requests.size(), one.requests) << one.file;
    EXPECT_EQ(prompt_tokens, one.prompt_tokens) << one.file;
    EXPECT_EQ(output_tokens, one.output_tokens) << one.file;
    EXPECT_NEAR(trace->requests.back().arrival_ms, one.last_ms, 0.01) << one.file;
  }
}

}  // namespace
}  // namespace quire
