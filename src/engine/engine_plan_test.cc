#include "engine/engine_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/tiny_engine.h"
#include "kv/kv_store.h"

namespace quire {
namespace {

TEST(EngineOptions, BadOptionsAreNamed) {
  struct Case {
    EngineOptions options;
    ErrorCode code;
    const char* field;
    const char* word;
  };
  const std::string path = tiny_model_path(TinyKind::kFull);
  const std::vector<Case> cases = {
      {{.model_path = ""}, ErrorCode::kInvalidArgument, "model_path", "empty"},
      {{.model_path = path, .threads = -1}, ErrorCode::kInvalidArgument, "threads", "-1"},
      {{.model_path = path, .threads = 257}, ErrorCode::kInvalidArgument, "threads", "256"},
      {{.model_path = path, .isa = "z80"}, ErrorCode::kUnsupported, "isa", "scalar"},
      {{.model_path = path, .kv_type = "int1"}, ErrorCode::kInvalidArgument, "kv_type", "f16"},
      {{.model_path = path, .context_length = -5}, ErrorCode::kInvalidArgument, "context_length", "-5"},
      {{.model_path = path, .context_length = 513}, ErrorCode::kInvalidArgument, "context_length", "512"},
      {{.model_path = path, .kv_bytes = 100}, ErrorCode::kResourceExhausted, "kv_bytes", "100"},
      {{.model_path = path, .inbox_requests_max = 0}, ErrorCode::kInvalidArgument, "inbox_requests_max", "0"},
      {{.model_path = path, .step_tokens_max = 0}, ErrorCode::kInvalidArgument, "step_tokens_max", "0"},
      {{.model_path = path, .step_tokens_max = 1 << 30},
       ErrorCode::kInvalidArgument,
       "step_tokens_max",
       "8192"},
  };
  for (const Case& c : cases) {
    auto engine = Engine::open(c.options);
    ASSERT_FALSE(engine.has_value()) << c.field;
    EXPECT_EQ(engine.error().code, c.code) << engine.error().message;
    EXPECT_EQ(engine.error().field, c.field);
    EXPECT_NE(engine.error().message.find(c.word), std::string::npos) << engine.error().message;
  }
  auto absent = Engine::open({.model_path = "/nowhere/at/all.gguf"});
  ASSERT_FALSE(absent.has_value());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
}

TEST(PlanPools, GivesTheLongestRequestThatFits) {
  KvGeometry geometry{.block_tokens = 32, .type = KvType::kF16};
  geometry.groups.push_back({.layers = {0, 2}, .kv_heads = 2, .key_dim = 64, .value_dim = 64});
  geometry.groups.push_back(
      {.layers = {1, 3, 4}, .kv_heads = 2, .key_dim = 64, .value_dim = 64, .window = 128});
  auto bytes = [&](const std::vector<int>& counts) {
    return counts[0] * kv_block_bytes(geometry, 0) + counts[1] * kv_block_bytes(geometry, 1);
  };
  const PoolDemand demand{.context_length = 4096, .step_tokens_max = 64, .bytes_max = uint64_t{1} << 40};
  const auto whole = plan_pools(geometry, demand).value();
  EXPECT_GE(whole[0] * 32, 4096);
  EXPECT_LT(whole[1], whole[0]);
  EXPECT_GE(whole[1] * 32, 128 + 64);
  size_t last = 0;
  for (uint64_t limit = 200 << 10; limit < 4 * bytes(whole); limit = limit * 5 / 4) {
    PoolDemand some = demand;
    some.kv_bytes = limit;
    const auto counts = plan_pools(geometry, some).value();
    EXPECT_LE(bytes(counts), limit);
    EXPECT_GE(bytes(counts), last);
    EXPECT_GE(bytes(counts) * 2, std::min<size_t>(limit, bytes(whole)));
    last = bytes(counts);
  }
  PoolDemand none = demand;
  none.kv_bytes = 1000;
  EXPECT_EQ(plan_pools(geometry, none).error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace quire
