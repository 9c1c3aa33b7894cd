#include "files/gguf_split.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "files/gguf_writer.h"

namespace quire {
namespace {

// What part `index` of a model in three parts holds.
GgufWriter part_writer(int index) {
  GgufWriter writer;
  if (index == 0) writer.add("general.architecture", "llama");
  writer.add("split.no", static_cast<uint16_t>(index));
  writer.add("split.count", uint16_t{3});
  writer.add("split.tensors.count", int32_t{4});
  const float values[] = {static_cast<float>(index), 1.0f};
  writer.add_tensor_f32(fmt::format("tensor.{}", index), {2}, values);
  if (index == 2) writer.add_tensor_f32("last", {2}, values);
  return writer;
}

class GgufSplit : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("quire_split_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (int index = 0; index < 3; ++index) write(index, part_writer(index));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(int index) const {
    return (folder_ / fmt::format("m-{:05}-of-00003.gguf", index + 1)).string();
  }
  void write(int index, GgufWriter writer) { ASSERT_TRUE(writer.write(path(index))); }
  Error open_error(int index = 0) {
    auto file = GgufFile::open(path(index));
    EXPECT_FALSE(file);
    return file ? Error{} : file.error();
  }

  std::filesystem::path folder_;
};

TEST_F(GgufSplit, PartsBecomeOneModel) {
  auto file = GgufFile::open(path(0));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(*file->get_string("general.architecture"), std::optional<std::string_view>("llama"));
  uint64_t bytes = 0;
  for (int index = 0; index < 3; ++index) {
    bytes += std::filesystem::file_size(path(index));
    const GgufTensor* tensor = file->find_tensor(fmt::format("tensor.{}", index));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->file_index, index);
    float value;
    std::memcpy(&value, tensor->bytes.data(), sizeof(value));
    EXPECT_EQ(value, static_cast<float>(index));
    file->release(*tensor);
  }
  EXPECT_EQ(file->file_bytes(), bytes);
}

TEST_F(GgufSplit, AMissingPartIsNamed) {
  std::filesystem::remove(path(1));
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_NE(error.message.find("part 2 of 3"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find(path(1)), std::string::npos) << error.message;
}

TEST_F(GgufSplit, ALaterPartNamesTheFirst) {
  const Error error = open_error(1);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(error.message.find(path(0)), std::string::npos) << error.message;
}

TEST_F(GgufSplit, PartsThatDisagreeAreRefused) {
  write(1, part_writer(1).set("split.count", uint16_t{4}));
  EXPECT_EQ(open_error().field, "split.count");
  write(1, part_writer(1).set("split.no", uint16_t{2}));
  EXPECT_EQ(open_error().field, "split.no");
  write(1, part_writer(1).set("split.tensors.count", int32_t{5}));
  EXPECT_EQ(open_error().field, "split.tensors.count");
  write(1, part_writer(1).remove("split.count"));
  EXPECT_EQ(open_error().field, "split.count");
}

TEST_F(GgufSplit, WrongCountsAreRefused) {
  for (int index = 0; index < 3; ++index)
    write(index, part_writer(index).set("split.tensors.count", int32_t{5}));
  EXPECT_EQ(open_error().field, "split.tensors.count");
  write(0, part_writer(0).set("split.count", uint16_t{2}));
  EXPECT_EQ(open_error().field, "split.count");
  write(0, part_writer(0).set("split.count", uint16_t{60000}));
  EXPECT_EQ(open_error().field, "split.count");
  write(0, part_writer(0).remove("split.no"));
  EXPECT_EQ(open_error().field, "split.no");
  write(0, part_writer(0).set("split.no", uint16_t{3}));
  EXPECT_EQ(open_error().field, "split.no");
  write(0, part_writer(0).set("split.no", "0"));
  EXPECT_EQ(open_error().field, "split.no");
}

TEST_F(GgufSplit, ATensorInTwoPartsIsRefused) {
  GgufWriter writer = part_writer(1);
  writer.tensors()[0].name = "tensor.0";
  write(1, writer);
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
  EXPECT_NE(error.message.find("tensor.0 is in part 1 and again in part 2"), std::string::npos)
      << error.message;
}

TEST_F(GgufSplit, ARenamedPartIsRefused) {
  const std::string other = (folder_ / "model.gguf").string();
  std::filesystem::copy_file(path(0), other);
  auto file = GgufFile::open(other);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find("-00001-of-00003.gguf"), std::string::npos) << file.error().message;
}

TEST_F(GgufSplit, OnePartIsNotReadByItself) {
  const auto bytes = part_writer(0).bytes();
  auto file = GgufFile::parse(bytes, "part");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().field, "split.count");
}

}  // namespace
}  // namespace quire
