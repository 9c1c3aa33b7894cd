#include "files/packed_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "files/packed_sample.h"

namespace quire {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// The sample as a file, and its bytes to spoil.
class PackedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    auto file = sample_.write(cache_);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    path_ = file->path();
    bytes_ = read_bytes(path_);
    ASSERT_EQ(bytes_.size(), file->header().file_bytes);
  }

  // What a reader with the sample's plan says to `bytes`.
  Result<> read(const std::string& bytes) {
    write_bytes(path_, bytes);
    PackedFile file = TRY(PackedFile::open(path_));
    return file.check(sample_.plan);
  }

  // The bytes with another header, whose hash is right again.
  std::string forged(const std::function<void(PackedHeader&)>& change) const {
    std::string bytes = bytes_;
    PackedHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    change(header);
    const auto covered = std::as_bytes(std::span(&header, 1)).first(offsetof(PackedHeader, header_hash));
    header.header_hash = content_hash(covered);
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
  }

  // The same for entry `index` of the table.
  std::string forged_entry(size_t index, const std::function<void(PackedEntry&)>& change) const {
    std::string bytes = bytes_;
    char* at = bytes.data() + kPackedPage + index * sizeof(PackedEntry);
    PackedEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    change(entry);
    std::memcpy(at, &entry, sizeof entry);
    const auto table = std::as_bytes(std::span(bytes)).subspan(kPackedPage, 3 * sizeof(PackedEntry));
    const ContentHash hash = content_hash(table);
    std::memcpy(bytes.data() + offsetof(PackedHeader, table_hash), &hash, sizeof hash);
    const ContentHash header =
        content_hash(std::as_bytes(std::span(bytes)).first(offsetof(PackedHeader, header_hash)));
    std::memcpy(bytes.data() + offsetof(PackedHeader, header_hash), &header, sizeof header);
    return bytes;
  }

  SampleFolder folder_;
  PackedCache cache_{{.folder = folder_.path(), .bytes_max = kNoLimit}};
  PackedSample sample_;
  std::string path_;
  std::string bytes_;
};

TEST_F(PackedFileTest, HoldsWhatWasWritten) {
  auto file = cache_.find(sample_.plan);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_TRUE(std::ranges::equal(file->data(), sample_.data));
  EXPECT_EQ(file->model(), "sample");
  EXPECT_EQ(file->header().source_hash, sample_.source);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->data().data()) % 64, 0u);
  EXPECT_TRUE(file->verify_data().has_value());
  EXPECT_EQ(folder_.count(kPackingPrefix), 0);
}

TEST_F(PackedFileTest, RemembersStatesOfTheSource) {
  auto file = cache_.find(sample_.plan);
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->has_seen(sample_.state));
  EXPECT_FALSE(file->has_seen({.low = 6, .high = 7}));
  EXPECT_FALSE(file->has_seen({}));
  for (uint64_t i = 100; i < 120; ++i) file->remember({.low = i, .high = 0});
  auto again = cache_.find(sample_.plan);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_TRUE(again->has_seen({.low = 119, .high = 0}));
  EXPECT_TRUE(again->has_seen({.low = 105, .high = 0}));
  EXPECT_FALSE(again->has_seen({.low = 104, .high = 0}));
  EXPECT_TRUE(again->verify_data().has_value());
}

TEST_F(PackedFileTest, RefusesEveryOtherLength) {
  const size_t size = bytes_.size();
  const size_t data = packed_data_offset(3);
  for (size_t length :
       {size_t{0}, size_t{1}, size_t{8}, sizeof(PackedHeader) - 1, sizeof(PackedHeader),
        size_t{kPackedPage} - 1, size_t{kPackedPage}, size_t{kPackedPage} + 1,
        size_t{kPackedPage} + 2 * sizeof(PackedEntry), data - 1, data, data + 1, size - 4096, size - 1}) {
    auto outcome = read(bytes_.substr(0, length));
    ASSERT_FALSE(outcome.has_value()) << length;
    EXPECT_EQ(outcome.error().code, ErrorCode::kCorruptFile) << outcome.error().message;
    EXPECT_NE(outcome.error().message.find(path_), std::string::npos);
  }
  EXPECT_FALSE(read(bytes_ + '\0').has_value());
  EXPECT_TRUE(read(bytes_).has_value());
}

TEST_F(PackedFileTest, RefusesEveryFlippedBitOfHeaderAndTable) {
  auto expect_refusal = [&](size_t at, int bit) {
    std::string bytes = bytes_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    EXPECT_FALSE(read(bytes).has_value()) << "byte " << at << " bit " << bit;
  };
  for (size_t at = 0; at < sizeof(PackedHeader); ++at) expect_refusal(at, static_cast<int>(at % 8));
  for (size_t at = 0; at < 3 * sizeof(PackedEntry); ++at)
    expect_refusal(kPackedPage + at, static_cast<int>(at % 8));
}

// What is damaged there costs a comparison of contents, and no more.
TEST_F(PackedFileTest, DistrustsDamagedStates) {
  for (size_t at = 0; at < sizeof(PackedSeen); ++at) {
    std::string bytes = bytes_;
    bytes[kPackedSeenOffset + at] = static_cast<char>(bytes[kPackedSeenOffset + at] ^ 4);
    ASSERT_TRUE(read(bytes).has_value());
    auto file = PackedFile::open(path_);
    ASSERT_TRUE(file.has_value());
    EXPECT_FALSE(file->has_seen(sample_.state)) << "byte " << at;
  }
}

// Someone who can compute hashes can write any number.
TEST_F(PackedFileTest, RefusesForgedNumbers) {
  const uint64_t extremes[] = {
      0, 1, 4, 63, 1u << 20, uint64_t{1} << 32, uint64_t{1} << 57, kNoLimit - 4095, kNoLimit};
  for (uint64_t value : extremes) {
    EXPECT_FALSE(read(forged([&](PackedHeader& h) { h.file_bytes = value; })).has_value()) << value;
    EXPECT_FALSE(read(forged([&](PackedHeader& h) { h.section_count = value; })).has_value()) << value;
    EXPECT_FALSE(read(forged([&](PackedHeader& h) { h.data_offset = value; })).has_value()) << value;
    EXPECT_FALSE(read(forged([&](PackedHeader& h) { h.data_bytes = value; })).has_value()) << value;
    for (size_t index : {0, 1, 2}) {
      const auto offset = [&](PackedEntry& e) { e.offset = value + (index == 0 && value == 0 ? 64 : 0); };
      EXPECT_FALSE(read(forged_entry(index, offset)).has_value()) << value;
      EXPECT_FALSE(read(forged_entry(index, [&](PackedEntry& e) { e.bytes = value; })).has_value()) << value;
      EXPECT_FALSE(read(forged_entry(index, [&](PackedEntry& e) { e.piece_bytes = value; })).has_value());
      EXPECT_FALSE(read(forged_entry(index, [&](PackedEntry& e) {
                     e.in = static_cast<uint32_t>(value) + 1000;
                   })).has_value());
    }
  }
  EXPECT_TRUE(read(forged([](PackedHeader&) {})).has_value());
  EXPECT_TRUE(read(forged_entry(1, [](PackedEntry&) {})).has_value());
}

TEST_F(PackedFileTest, RefusesOtherVersionsAndLayouts) {
  auto format = read(forged([](PackedHeader& h) { h.format_version += 1; }));
  ASSERT_FALSE(format.has_value());
  EXPECT_EQ(format.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(format.error().message.find("format_version is 2"), std::string::npos) << format.error().message;
  auto version = read(forged([](PackedHeader& h) { h.layout_version += 1; }));
  ASSERT_FALSE(version.has_value());
  EXPECT_EQ(version.error().field, "layout");
  auto layout = read(forged([](PackedHeader& h) { std::memcpy(h.layout.data(), "tiles", 6); }));
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().message.find("tiles"), std::string::npos) << layout.error().message;
  auto key = read(forged([](PackedHeader& h) { h.key.low ^= 1; }));
  ASSERT_FALSE(key.has_value());
  EXPECT_EQ(key.error().field, "key");
}

TEST_F(PackedFileTest, NamesADamagedTensor) {
  for (const PackedSection& section : sample_.plan.sections) {
    std::string bytes = bytes_;
    char& byte = bytes[packed_data_offset(3) + section.offset + section.bytes - 1];
    byte = static_cast<char>(byte ^ 1);
    ASSERT_TRUE(read(bytes).has_value());
    auto outcome = PackedFile::open(path_)->verify_data();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_NE(outcome.error().message.find(section.name), std::string::npos) << outcome.error().message;
  }
}

// Bytes that are random, with hashes that are wrong or right: refused or served, never a crash.
TEST_F(PackedFileTest, SurvivesRandomDamage) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = round % 2 == 0 ? bytes_ : forged([&](PackedHeader& header) {
      auto* raw = reinterpret_cast<unsigned char*>(&header);
      const size_t first = offsetof(PackedHeader, file_bytes);
      for (int i = 0; i < 3; ++i) raw[first + random() % (offsetof(PackedHeader, key) - first)] ^= random();
    });
    for (unsigned i = 0; i < random() % 4; ++i)
      bytes[random() % packed_data_offset(3)] ^= static_cast<char>(random());
    write_bytes(path_, bytes);
    auto file = PackedFile::open(path_);
    if (!file) continue;
    (void)file->verify_data();
    if (file->check(sample_.plan)) EXPECT_TRUE(std::ranges::equal(file->data(), sample_.data));
  }
}

TEST_F(PackedFileTest, RefusesWhatIsNoFile) {
  EXPECT_EQ(PackedFile::open(folder_.path() + "/absent").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(PackedFile::open(folder_.path()).has_value());
  const std::string pipe = folder_.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(PackedFile::open(pipe).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
