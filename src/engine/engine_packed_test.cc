// Engines that start from the cache of packed weights.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/packed_report.h"
#include "engine/tiny_engine.h"
#include "files/packed_sample.h"

namespace quire {
namespace {

Answer ask(Engine& engine) {
  Request request{.prompt_token_ids = random_prompt(40, 3)};
  request.sampling.max_tokens = 20;
  request.sampling.ignore_eos = true;
  auto stream = engine.submit(std::move(request));
  EXPECT_TRUE(stream.has_value());
  return read_all(*stream);
}

TEST(EnginePacked, TellsWhereItsWeightsComeFrom) {
  const SampleFolder folder;
  EngineOptions options = tiny_options();
  auto plain = open_tiny(options);
  EXPECT_EQ(plain->model().weights_from, "memory");
  const Answer expected = ask(*plain);
  options.packed_cache = folder.path();
  for (const char* origin : {"new packed file", "packed file"}) {
    auto engine = open_tiny(options);
    EXPECT_EQ(engine->model().weights_from, origin);
    EXPECT_EQ(engine->model().packed_cache_notice, "");
    EXPECT_EQ(engine->model().weight_bytes, plain->model().weight_bytes);
    EXPECT_EQ(ask(*engine).ids, expected.ids);
  }
  options.packed_cache_bytes = 100;
  EXPECT_EQ(open_tiny(options)->model().weights_from,
            "packed file");  // bounds what is written, not what is read
}

TEST(EnginePacked, StartsWithoutACacheThatCannotServe) {
  const SampleFolder folder;
  EngineOptions options = tiny_options();
  options.packed_cache = folder.path();
  options.packed_cache_bytes = 100;
  auto engine = open_tiny(options);
  EXPECT_EQ(engine->model().weights_from, "memory");
  EXPECT_NE(engine->model().packed_cache_notice.find("100"), std::string::npos);
  EXPECT_EQ(ask(*engine).ids.size(), 20u);
}

TEST(PackedReport, ShowsVerifiesAndClears) {
  const SampleFolder folder;
  EXPECT_TRUE(report_packed_cache(folder.path() + "/absent", PackedCheck::kAll).empty());
  EngineOptions options = tiny_options();
  options.packed_cache = folder.path();
  auto engine = open_tiny(options);
  auto reports = report_packed_cache(folder.path(), PackedCheck::kAll);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].model, "tiny");
  EXPECT_EQ(reports[0].fault, "");
  EXPECT_GT(reports[0].bytes, engine->model().weight_bytes);
  EXPECT_EQ(clear_packed_cache(folder.path()).files_kept, 1);  // in use
  engine.reset();
  std::string bytes = read_bytes(reports[0].path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  const std::string path = reports[0].path;
  write_bytes(path, bytes);
  EXPECT_EQ(report_packed_cache(folder.path(), PackedCheck::kHeaders)[0].fault, "");
  EXPECT_NE(report_packed_cache(folder.path(), PackedCheck::kAll)[0].fault, "");
  write_bytes(path, "short");
  reports = report_packed_cache(folder.path(), PackedCheck::kHeaders);
  EXPECT_NE(reports[0].fault.find(path), std::string::npos);
  const PackedRemoval removal = clear_packed_cache(folder.path());
  EXPECT_EQ(removal.files, 1);
  EXPECT_EQ(removal.bytes, 5u);
  EXPECT_TRUE(report_packed_cache(folder.path(), PackedCheck::kHeaders).empty());
}

}  // namespace
}  // namespace quire
