#include "files/packed_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "files/packed_sample.h"

namespace quire {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// What `body` returns in a process of its own; -1 when that dies.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

PackedCache cache_in(const SampleFolder& folder, uint64_t bytes_max = kNoLimit) {
  return PackedCache({.folder = folder.path(), .bytes_max = bytes_max});
}

TEST(PackedCache, FindsNothingInAFolderThatIsNotThere) {
  const PackedCache cache({.folder = "/nowhere/at/all", .bytes_max = kNoLimit});
  EXPECT_EQ(cache.find(PackedSample().plan).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(cache.list().empty());
}

TEST(PackedCache, MakesItsFolder) {
  const SampleFolder folder;
  const PackedCache cache({.folder = folder.path() + "/a/b", .bytes_max = kNoLimit});
  ASSERT_TRUE(PackedSample().write(cache).has_value());
  EXPECT_EQ(cache.list().size(), 1u);
}

TEST(PackedCache, TellsKeysAndLayoutsApart) {
  const SampleFolder folder;
  const PackedCache cache = cache_in(folder);
  PackedSample sample;
  ASSERT_TRUE(sample.write(cache).has_value());
  EXPECT_EQ(cache.find(PackedSample(2).plan).error().code, ErrorCode::kNotFound);
  // The same name for another layout: somebody renamed it, or keys collide.
  sample.plan.layout = "tiles";
  EXPECT_EQ(cache.find(sample.plan).error().code, ErrorCode::kCorruptFile);
}

TEST(PackedCache, RemovesLongestUnusedFirst) {
  const SampleFolder folder;
  std::vector<PackedSample> samples;
  for (unsigned seed = 1; seed <= 5; ++seed) samples.emplace_back(seed, 100'000);
  uint64_t bytes = 0;
  for (int i = 0; i < 3; ++i) {
    auto file = samples[static_cast<size_t>(i)].write(cache_in(folder));
    ASSERT_TRUE(file.has_value());
    bytes = file->header().file_bytes;
  }
  const PackedCache cache = cache_in(folder, 3 * bytes + 100);
  cache.find(samples[0].plan)->touch();  // now the second is the oldest
  ASSERT_TRUE(samples[3].write(cache).has_value());
  EXPECT_TRUE(cache.find(samples[0].plan).has_value());
  EXPECT_EQ(cache.find(samples[1].plan).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(cache.find(samples[2].plan).has_value());
  // A file that somebody reads stays, whatever its age.
  const auto reader = cache.find(samples[2].plan);
  ASSERT_TRUE(samples[4].write(cache).has_value());
  EXPECT_TRUE(cache.find(samples[2].plan).has_value());
  EXPECT_EQ(cache.find(samples[0].plan).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(cache.list().size(), 3u);
}

TEST(PackedCache, SaysWhenThereIsNoRoom) {
  const SampleFolder folder;
  PackedSample first(1);
  PackedSample second(2);
  auto reader = first.write(cache_in(folder));
  ASSERT_TRUE(reader.has_value());
  const uint64_t bytes = reader->header().file_bytes;
  auto in_use = second.write(cache_in(folder, 2 * bytes - 1));
  ASSERT_FALSE(in_use.has_value());
  EXPECT_EQ(in_use.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(in_use.error().message.find(std::to_string(bytes)), std::string::npos) << in_use.error().message;
  // A file that can never fit costs no other one its place.
  EXPECT_FALSE(second.write(cache_in(folder, bytes - 1)).has_value());
  EXPECT_EQ(cache_in(folder).list().size(), 1u);
}

// What is in use leaves too little room: then the others stay as well.
TEST(PackedCache, RemovesNothingInVain) {
  const SampleFolder folder;
  std::vector<PackedSample> samples;
  for (unsigned seed = 1; seed <= 3; ++seed) samples.emplace_back(seed);
  ASSERT_TRUE(samples[0].write(cache_in(folder)).has_value());
  const auto reader = samples[1].write(cache_in(folder));
  ASSERT_TRUE(reader.has_value());
  EXPECT_FALSE(samples[2].write(cache_in(folder, 2 * reader->header().file_bytes - 1)).has_value());
  EXPECT_EQ(cache_in(folder).list().size(), 2u);
}

TEST(PackedCache, AFileThatIsReplacedTakesNoRoom) {
  const SampleFolder folder;
  PackedSample sample;
  const auto first = sample.write(cache_in(folder));
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(sample.write(cache_in(folder, first->header().file_bytes)).has_value());
}

TEST(PackedCache, SaysWhenItCannotWrite) {
  const SampleFolder folder;
  write_bytes(folder.path() + "/file", "x");
  const PackedCache cache({.folder = folder.path() + "/file/packed", .bytes_max = kNoLimit});
  auto outcome = PackedSample().write(cache);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kIo);
  EXPECT_NE(outcome.error().message.find(folder.path()), std::string::npos) << outcome.error().message;
}

// The limit on file sizes stands for a full disk: room is refused before anything is written.
TEST(PackedCache, LeavesNothingWhereTheDiskIsFull) {
  const SampleFolder folder;
  const int outcome = in_child([&] {
    const rlimit limit{.rlim_cur = 10'000, .rlim_max = 10'000};
    ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto written = PackedSample(1, 100'000).write(cache_in(folder));
    return !written && written.error().code == ErrorCode::kIo ? 0 : 1;
  });
  EXPECT_EQ(outcome, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PackedCache, LeavesNothingOfAWriterThatGivesUp) {
  const SampleFolder folder;
  PackedSample sample;
  {
    auto writer = cache_in(folder).begin(sample.plan);
    ASSERT_TRUE(writer.has_value());
    EXPECT_EQ(folder.count(kPackingPrefix), 1);
    ASSERT_TRUE(writer->write(0, std::span(sample.data).first(100)).has_value());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PackedCache, ClearsUpAfterAWriterThatDied) {
  const SampleFolder folder;
  PackedSample sample;
  const int outcome = in_child([&] {
    auto writer = cache_in(folder).begin(sample.plan);
    (void)writer->write(0, std::span(sample.data).first(100));
    ::_exit(3);  // as if killed: no destructor runs
    return 0;
  });
  EXPECT_EQ(outcome, 3);
  EXPECT_EQ(folder.count(kPackingPrefix), 1);
  EXPECT_EQ(cache_in(folder).find(sample.plan).error().code, ErrorCode::kNotFound);
  PackedSample other(2);
  const auto living = cache_in(folder).begin(other.plan);
  ASSERT_TRUE(living.has_value());
  ASSERT_TRUE(sample.write(cache_in(folder)).has_value());
  EXPECT_EQ(folder.count(kPackingPrefix), 1);  // the living one's
}

TEST(PackedCache, ServesWritersThatComeTogether) {
  const SampleFolder folder;
  PackedSample sample(1, 200'000);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        auto file = sample.write(cache_in(folder));
        good += file && std::ranges::equal(file->data(), sample.data) && file->verify_data() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 40);
  EXPECT_EQ(folder.count(kPackingPrefix), 0);
  EXPECT_EQ(cache_in(folder).list().size(), 1u);
  EXPECT_TRUE(cache_in(folder).find(sample.plan)->verify_data().has_value());
}

TEST(PackedCache, KeepsWhatIsMappedWhenAFileIsReplaced) {
  const SampleFolder folder;
  PackedSample sample(1);
  auto before = sample.write(cache_in(folder));
  ASSERT_TRUE(before.has_value());
  PackedSample other(2);
  other.plan.key = sample.plan.key;
  ASSERT_TRUE(other.write(cache_in(folder)).has_value());
  before->remember({.low = 1, .high = 1});  // goes to nobody: the name is another file's now
  EXPECT_TRUE(std::ranges::equal(before->data(), sample.data));
  auto after = cache_in(folder).find(sample.plan);
  ASSERT_TRUE(after.has_value());
  EXPECT_TRUE(std::ranges::equal(after->data(), other.data));
  EXPECT_FALSE(after->has_seen({.low = 1, .high = 1}));
}

}  // namespace
}  // namespace quire
