#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/clock.h"

namespace quire {
namespace {

std::string temporary_path(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("quire_mapped_file_" + name)).string();
}

TEST(MappedFile, ReadsBytesAlsoAfterTheirPagesWereReleased) {
  std::string path = temporary_path("read");
  std::string content(100000, 'q');
  std::ofstream(path, std::ios::binary) << content;
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.has_value());
  ASSERT_EQ(file->bytes().size(), content.size());
  file->release_pages(file->bytes());
  EXPECT_EQ(static_cast<char>(file->bytes()[99999]), 'q');
  MappedFile moved = std::move(*file);
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_EQ(moved.bytes().size(), content.size());
  std::filesystem::remove(path);
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  std::string path = temporary_path("empty");
  std::ofstream(path).flush();
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->bytes().empty());
  std::filesystem::remove(path);
}

TEST(MappedFile, FaultsNameThePath) {
  auto missing = MappedFile::open("/nonexistent/model.gguf");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("/nonexistent/model.gguf"), std::string::npos);
  auto directory = MappedFile::open("/tmp");
  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.error().code, ErrorCode::kInvalidArgument);
}

TEST(Nanoseconds, StopAtTheEndsOfTheirRange) {
  EXPECT_EQ(nanoseconds_of({.tv_sec = 3, .tv_nsec = 4}), 3'000'000'004);
  EXPECT_EQ(nanoseconds_of({.tv_sec = int64_t{1} << 40, .tv_nsec = 0}), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(nanoseconds_of({.tv_sec = -(int64_t{1} << 40), .tv_nsec = 0}),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(nanoseconds_of({.tv_sec = 9'223'372'036, .tv_nsec = 999'999'999}),
            std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace quire
