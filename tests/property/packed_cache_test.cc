// The cache of packed weights, seen from the model: the same bits, whatever lies in the folder.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "files/packed_sample.h"
#include "kernels/packed_version.h"
#include "tests/data_paths.h"
#include "tests/model_sameness.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A model file on disk and a cache folder beside it.
class PackedWeightsTest : public testing::Test {
 protected:
  void write_model(const TinyModel& model) {
    const std::vector<std::byte> bytes = TinyModelWriter(model).bytes();
    write_bytes(model_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  [[nodiscard]] PackedCacheOptions cache() const {
    return {.folder = folder_.path() + "/packed", .bytes_max = kNoLimit};
  }

  // The model's logits of a fixed prompt, and what its weights say of themselves.
  struct Run {
    Logits logits;
    WeightOrigin origin;
    std::string notice;
  };
  [[nodiscard]] Run run(const std::string& path, const PackedCacheOptions& cache) const {
    auto runner = ModelRunner::open(path, {.threads = 2, .kv_tokens = 64, .packed_cache = cache});
    CHECK(runner.has_value());
    std::mt19937 random(7);
    const auto ids = random_ids(random, 9, (*runner)->model().spec().vocab_size);
    return {.logits = run_alone(**runner, ids, 4),
            .origin = (*runner)->model().weight_origin(),
            .notice = (*runner)->model().weight_notice()};
  }
  [[nodiscard]] Run run() const { return run(model_, cache()); }
  [[nodiscard]] Logits run_in_memory() const { return run(model_, {}).logits; }

  [[nodiscard]] std::string packed_path() const {
    const auto entries = PackedCache(cache()).list();
    CHECK(entries.size() == 1);
    return entries.front().path;
  }

  // Changes one byte in the middle of a tensor and restores size and mtime, as a bad copy or a bad disk
  // would.
  void change_in_secret(std::string_view tensor) const {
    struct stat before;
    CHECK(::stat(model_.c_str(), &before) == 0);
    const GgufFile gguf = GgufFile::open(model_).value();
    const std::span<const std::byte> bytes = gguf.find_tensor(tensor)->bytes;
    const size_t at =
        read_bytes(model_).find(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())) +
        1000;
    CHECK(bytes.size() > 1000 && at < gguf.file_bytes());
    std::fstream file(model_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x11));
    file.close();
    const timespec times[2] = {before.st_atim, before.st_mtim};
    CHECK(::utimensat(AT_FDCWD, model_.c_str(), times, 0) == 0);
  }

  SampleFolder folder_;
  std::string model_ = folder_.path() + "/model.gguf";
};

TEST_F(PackedWeightsTest, GiveTheSameBitsForEveryType) {
  for (const TensorTypeInfo& info : tensor_types()) {
    write_model({.width = 256,
                 .heads = 4,
                 .head_dim = 64,
                 .ffn_width = 256,
                 .vocab_size = 137,
                 .type = info.type,
                 .other_type = info.type});
    const Logits expected = run_in_memory();
    const Run first = run();
    const Run second = run();
    EXPECT_EQ(first.origin, WeightOrigin::kNewFile) << info.name;
    EXPECT_EQ(second.origin, WeightOrigin::kFile) << info.name;
    EXPECT_EQ(first.notice + second.notice, "");
    EXPECT_TRUE(same_bits(first.logits, expected)) << info.name;
    EXPECT_TRUE(same_bits(second.logits, expected)) << info.name;
  }
  EXPECT_EQ(PackedCache(cache()).list().size(), tensor_types().size());
  for (const PackedCacheEntry& entry : PackedCache(cache()).list())
    EXPECT_TRUE(PackedFile::open(entry.path)->verify_data().has_value());
}

TEST_F(PackedWeightsTest, GiveTheSameBitsForEveryArchitecture) {
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    write_model({.architecture = architecture, .window = architecture == std::string("gemma3") ? 16 : 0});
    const Logits expected = run_in_memory();
    EXPECT_TRUE(same_bits(run().logits, expected)) << architecture;
    EXPECT_TRUE(same_bits(run().logits, expected)) << architecture;
  }
}

TEST_F(PackedWeightsTest, StayInMemoryWithoutACache) {
  write_model({});
  EXPECT_EQ(run(model_, {}).origin, WeightOrigin::kMemory);
  EXPECT_FALSE(fs::exists(cache().folder));
}

TEST_F(PackedWeightsTest, BelongToContentsNotToPaths) {
  write_model({});
  EXPECT_EQ(run().origin, WeightOrigin::kNewFile);
  const std::string copy = folder_.path() + "/copy.gguf";
  fs::copy_file(model_, copy);
  EXPECT_EQ(run(copy, cache()).origin, WeightOrigin::kFile);
  write_model({.seed = 2});
  EXPECT_EQ(run().origin, WeightOrigin::kNewFile);
  EXPECT_EQ(run(copy, cache()).origin, WeightOrigin::kFile);
  EXPECT_EQ(PackedCache(cache()).list().size(), 2u);
}

// Size, mtime, inode and everything that the key covers stay as they were. The state of a file that was
// written just now stands for nothing, since a clock's tick may hide the change.
TEST_F(PackedWeightsTest, AreNotServedForContentsThatChangedJustNow) {
  write_model({});
  EXPECT_EQ(run().origin, WeightOrigin::kNewFile);
  EXPECT_EQ(run().origin, WeightOrigin::kFile);
  const Logits before = run_in_memory();
  change_in_secret("blk.1.ffn_down.weight");
  const Run after = run();
  EXPECT_EQ(after.origin, WeightOrigin::kNewFile);
  EXPECT_NE(after.notice.find("packed from other contents"), std::string::npos) << after.notice;
  EXPECT_TRUE(same_bits(after.logits, run_in_memory()));
  EXPECT_FALSE(same_bits(after.logits, before));
  EXPECT_EQ(run().origin, WeightOrigin::kFile);
}

// The same where the state is known and relied on.
TEST_F(PackedWeightsTest, AreNotServedForContentsThatChanged) {
  write_model({});
  EXPECT_EQ(run().origin, WeightOrigin::kNewFile);
  std::this_thread::sleep_for(std::chrono::milliseconds(3500));  // until the state is relied on
  EXPECT_EQ(run().origin, WeightOrigin::kFile);
  // It is: damage to the hash of the source, which would show in a comparison, goes unnoticed.
  std::string packed = read_bytes(packed_path());
  PackedHeader header;
  std::memcpy(&header, packed.data(), sizeof header);
  header.source_hash.low ^= 1;
  header.header_hash =
      content_hash(std::as_bytes(std::span(&header, 1)).first(offsetof(PackedHeader, header_hash)));
  std::memcpy(packed.data(), &header, sizeof header);
  const std::string good = read_bytes(packed_path());
  write_bytes(packed_path(), packed);
  EXPECT_EQ(run().origin, WeightOrigin::kFile);
  write_bytes(packed_path(), good);
  change_in_secret("blk.0.ffn_up.weight");
  const Run after = run();
  EXPECT_EQ(after.origin, WeightOrigin::kNewFile);
  EXPECT_TRUE(same_bits(after.logits, run_in_memory()));
}

TEST_F(PackedWeightsTest, AreRebuiltWhenTheFileIsDamaged) {
  write_model({});
  const Logits expected = run_in_memory();
  EXPECT_EQ(run().origin, WeightOrigin::kNewFile);
  const std::string good = read_bytes(packed_path());
  auto spoiled = [&](size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  for (const std::string& bad :
       {std::string(), good.substr(0, 100), good.substr(0, good.size() - 1), good + "x", spoiled(3),
        spoiled(8), spoiled(12), spoiled(150), spoiled(kPackedPage + 70), std::string(good.size(), '\0')}) {
    write_bytes(packed_path(), bad);
    const Run rebuilt = run();
    EXPECT_EQ(rebuilt.origin, WeightOrigin::kNewFile);
    EXPECT_NE(rebuilt.notice.find(packed_path()), std::string::npos) << rebuilt.notice;
    EXPECT_TRUE(same_bits(rebuilt.logits, expected));
    EXPECT_EQ(run().origin, WeightOrigin::kFile);
  }
}

TEST_F(PackedWeightsTest, SurviveRandomDamageOfHeaderAndTable) {
  write_model({});
  const Logits expected = run_in_memory();
  EXPECT_EQ(run().origin, WeightOrigin::kNewFile);
  const std::string good = read_bytes(packed_path());
  const size_t front = good.size() - PackedFile::open(packed_path())->data().size();
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    std::string bytes = good;
    for (unsigned i = 0; i <= random() % 8; ++i)
      bytes[random() % front] ^= static_cast<char>(1 + random() % 255);
    write_bytes(packed_path(), bytes);
    EXPECT_TRUE(same_bits(run().logits, expected)) << "round " << round;
  }
}

TEST_F(PackedWeightsTest, ArePackedInMemoryWhereTheCacheCannotServe) {
  write_model({});
  const Logits expected = run_in_memory();
  write_bytes(folder_.path() + "/file", "x");
  const Run unwritable = run(model_, {.folder = folder_.path() + "/file/packed", .bytes_max = kNoLimit});
  EXPECT_EQ(unwritable.origin, WeightOrigin::kMemory);
  EXPECT_NE(unwritable.notice.find("packed in memory"), std::string::npos) << unwritable.notice;
  EXPECT_TRUE(same_bits(unwritable.logits, expected));
  const Run too_small = run(model_, {.folder = cache().folder, .bytes_max = 1000});
  EXPECT_EQ(too_small.origin, WeightOrigin::kMemory);
  EXPECT_NE(too_small.notice.find("1000"), std::string::npos) << too_small.notice;
  EXPECT_TRUE(same_bits(too_small.logits, expected));
  EXPECT_TRUE(fs::is_empty(cache().folder));
}

TEST_F(PackedWeightsTest, ServeProcessesThatStartTogether) {
  write_model({.width = 256, .heads = 4, .head_dim = 64, .ffn_width = 512, .vocab_size = 2000});
  const Logits expected = run_in_memory();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const Run mine = run();
      ::_exit(mine.notice.empty() && same_bits(mine.logits, expected) ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(run().origin, WeightOrigin::kFile);
  EXPECT_TRUE(PackedFile::open(packed_path())->verify_data().has_value());
}

// Files of earlier builds must not be read where the panels have become others: whoever changes them raises
// kPackedLayoutVersion and writes the new hash here.
TEST(PackedVersion, StandsForTheBytesOfEveryType) {
  std::vector<ContentHash> hashes;
  for (const TensorTypeInfo& info : tensor_types()) {
    const int in = 2 * 256;
    const int out = 21;
    std::mt19937 random(5);
    std::vector<std::byte> source(static_cast<size_t>(out * in / info.block_elements * info.block_bytes));
    for (std::byte& byte : source) byte = static_cast<std::byte>(random() >> 24);
    std::vector<std::byte> packed(2 * packed_panel_bytes(info.type, in));
    pack_panels(info.type, out, in, source, 0, 2, packed.data());
    hashes.push_back(content_hash(packed));
  }
  EXPECT_EQ(kPackedLayoutVersion, 1u);
  EXPECT_EQ(content_hash(hashes).hex(), "8fb730509cfe044dcfd53f85a6104521");
}

}  // namespace
}  // namespace quire::test
