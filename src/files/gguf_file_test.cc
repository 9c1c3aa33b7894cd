#include "files/gguf_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "files/gguf_format.h"
#include "files/gguf_writer.h"

namespace quire {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.5f);
  return values;
}

// A small valid file with every kind of field.
GgufWriter small_writer() {
  GgufWriter writer;
  writer.add("general.architecture", "llama");
  writer.add("general.alignment", uint32_t{32});
  writer.add("test.tokens", std::vector<std::string>{"a", "bc", ""});
  writer.add("test.flag", true);
  writer.add("test.flags", std::vector<bool>{true, false});
  writer.add("test.count", uint16_t{7});
  writer.add_tensor_f32("first", {2, 3}, ramp(6));
  writer.add_tensor(
      {.name = "second", .type = TensorType::kQ8_0, .shape = {2, 64}, .bytes = Bytes(4 * 34, std::byte{1})});
  writer.add_tensor_f32("third", {5}, ramp(5));
  return writer;
}

template <class T>
void put(Bytes& bytes, uint64_t at, T value) {
  ASSERT_LE(at + sizeof(T), bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

Error error_of(const Bytes& bytes) {
  auto file = GgufFile::parse(bytes, "test.gguf");
  if (file) {
    ADD_FAILURE() << "the file was accepted";
    return {};
  }
  return file.error();
}

// --- Reading what was written --------------------------------------------------------------------------

TEST(GgufFile, ReadsAFileWrittenByHand) {
  // Independent of GgufWriter: one pair and one F16 tensor, byte by byte.
  const unsigned char raw[] = {
      'G', 'G', 'U', 'F', 3, 0, 0, 0, 1,   0, 0, 0, 0, 0,    0,    0,    1,    0, 0, 0, 0, 0, 0, 0,  // header
      1,   0,   0,   0,   0, 0, 0, 0, 'k', 5, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff,  // k = int32 -2
      1,   0,   0,   0,   0, 0, 0, 0, 't', 2, 0, 0, 0,                          // tensor t, 2 dims
      2,   0,   0,   0,   0, 0, 0, 0, 1,   0, 0, 0, 0, 0,    0,    0,           // [1, 2]
      1,   0,   0,   0,   0, 0, 0, 0, 0,   0, 0, 0,                             // F16 at 0
  };
  Bytes bytes(sizeof(raw));
  std::memcpy(bytes.data(), raw, sizeof(raw));
  bytes.resize((bytes.size() + 31) / 32 * 32);
  const size_t data = bytes.size();
  bytes.resize(data + 4, std::byte{0x3c});
  auto file = GgufFile::parse(bytes, "hand");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(*file->get_int("k"), std::optional<int64_t>(-2));
  ASSERT_EQ(file->tensors().size(), 1u);
  const GgufTensor& tensor = file->tensors()[0];
  EXPECT_EQ(tensor.name, "t");
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(tensor.type, TensorType::kF16);
  EXPECT_EQ(tensor.bytes.data(), bytes.data() + data);
  EXPECT_EQ(tensor.bytes.size(), 4u);
}

template <class T>
void expect_round_trip(T low, T high) {
  GgufWriter writer;
  writer.add("value", high);
  writer.add("array", std::vector<T>{low, high, low});
  writer.add("empty", std::vector<T>{});
  const Bytes bytes = writer.bytes();
  auto file = GgufFile::parse(bytes, "round trip");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(std::holds_alternative<T>(*file->find("value")));
  EXPECT_EQ(std::get<T>(*file->find("value")), high);
  EXPECT_EQ(file->find("value")->index(), gguf_type_of<T>());
  const GgufArray* array = *file->get_array("array");
  ASSERT_NE(array, nullptr);
  EXPECT_EQ(array->element_type, gguf_type_of<T>());
  EXPECT_EQ(std::get<std::vector<T>>(array->elements), (std::vector<T>{low, high, low}));
  EXPECT_EQ((*file->get_array("empty"))->size(), 0u);
}

TEST(GgufFile, EveryNumberTypeComesBack) {
  expect_round_trip<uint8_t>(0, 255);
  expect_round_trip<int8_t>(-128, 127);
  expect_round_trip<uint16_t>(0, 65535);
  expect_round_trip<int16_t>(-32768, 32767);
  expect_round_trip<uint32_t>(0, UINT32_MAX);
  expect_round_trip<int32_t>(INT32_MIN, INT32_MAX);
  expect_round_trip<uint64_t>(0, UINT64_MAX);
  expect_round_trip<int64_t>(INT64_MIN, INT64_MAX);
  expect_round_trip<float>(-1.5f, 3e38f);
  expect_round_trip<double>(-1.25, 1e300);
  expect_round_trip<bool>(false, true);
}

TEST(GgufFile, StringsAndNestedArraysComeBack) {
  GgufWriter writer;
  const std::string odd("nul\0and \xff", 9);
  writer.add("text", odd);
  writer.add("texts", std::vector<std::string>{"", odd, "z"});
  writer.add("nested", std::vector<std::vector<int32_t>>{{1, 2}, {}, {3}});
  const Bytes bytes = writer.bytes();
  auto file = GgufFile::parse(bytes, "strings");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(*file->get_string("text"), std::optional<std::string_view>(odd));
  const auto& texts = std::get<std::vector<std::string_view>>((*file->get_array("texts"))->elements);
  EXPECT_EQ(texts, (std::vector<std::string_view>{"", odd, "z"}));
  const auto& nested = std::get<std::vector<GgufValue>>((*file->get_array("nested"))->elements);
  ASSERT_EQ(nested.size(), 3u);
  const auto& inner = std::get<std::shared_ptr<const GgufArray>>(nested[0]);
  EXPECT_EQ(std::get<std::vector<int32_t>>(inner->elements), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(std::get<std::shared_ptr<const GgufArray>>(nested[1])->size(), 0u);
}

TEST(GgufFile, TensorsComeBack) {
  for (uint32_t version : {2u, 3u}) {
    GgufWriter writer(version);
    for (const TensorTypeInfo& info : tensor_types()) {
      writer.add_tensor({.name = std::string(info.name),
                         .type = info.type,
                         .shape = {3, info.block_elements * 2},
                         .bytes = Bytes(info.block_bytes * 6, std::byte(info.block_bytes))});
    }
    writer.set_alignment(64);
    const Bytes bytes = writer.bytes();
    auto file = GgufFile::parse(bytes, "tensors");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->version(), version);
    ASSERT_EQ(file->tensors().size(), tensor_types().size());
    for (size_t i = 0; i < tensor_types().size(); ++i) {
      const TensorTypeInfo& info = tensor_types()[i];
      const GgufTensor* tensor = file->find_tensor(info.name);
      ASSERT_EQ(tensor, &file->tensors()[i]);
      EXPECT_EQ(tensor->elements(), info.block_elements * 6);
      EXPECT_EQ(tensor->bytes.size(), static_cast<size_t>(info.block_bytes) * 6);
      EXPECT_EQ(tensor->bytes.back(), std::byte(info.block_bytes));
      EXPECT_EQ(tensor->bytes.data() - bytes.data(),
                static_cast<ptrdiff_t>(writer.offset_of(fmt::format("data[{}]", i)).value()));
    }
    EXPECT_EQ(file->find_tensor("no such"), nullptr);
  }
}

TEST(GgufFile, AFileOnDiskIsTheSameAsOneInMemory) {
  GgufWriter writer = small_writer();
  const std::string path = testing::TempDir() + "/quire_small.gguf";
  ASSERT_TRUE(writer.write(path));
  auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->file_bytes(), writer.bytes().size());
  EXPECT_EQ(file->metadata().size(), 6u);
  EXPECT_EQ(file->metadata()[0].first, "general.architecture");
  const GgufTensor* tensor = file->find_tensor("third");
  ASSERT_NE(tensor, nullptr);
  file->release(*tensor);
  float value;
  std::memcpy(&value, tensor->bytes.data() + 8, sizeof(value));
  EXPECT_EQ(value, 2.5f);
  EXPECT_EQ(GgufFile::open(path + ".absent").error().code, ErrorCode::kNotFound);
}

// --- Typed look-ups -------------------------------------------------------------------------------------

TEST(GgufLookups, ConvertIntegersThatFit) {
  GgufWriter writer;
  writer.add("u8", uint8_t{200});
  writer.add("i64", int64_t{-5});
  writer.add("u64", uint64_t{1} << 63);
  writer.add("f32", 0.5f);
  writer.add("f64", 0.25);
  writer.add("flag", true);
  writer.add("text", "hello");
  const Bytes bytes = writer.bytes();
  auto file = GgufFile::parse(bytes, "f.gguf");
  ASSERT_TRUE(file);
  EXPECT_EQ(*file->get_int("u8"), std::optional<int64_t>(200));
  EXPECT_EQ(*file->get_int("i64"), std::optional<int64_t>(-5));
  EXPECT_EQ(*file->get_float("f32"), std::optional<double>(0.5));
  EXPECT_EQ(*file->get_float("f64"), std::optional<double>(0.25));
  EXPECT_EQ(*file->get_bool("flag"), std::optional<bool>(true));
  EXPECT_EQ(*file->get_int("absent"), std::nullopt);
  EXPECT_EQ(*file->get_float("absent"), std::nullopt);
  EXPECT_EQ(*file->get_bool("absent"), std::nullopt);
  EXPECT_EQ(*file->get_string("absent"), std::nullopt);
  EXPECT_EQ(*file->get_array("absent"), nullptr);
  EXPECT_EQ(file->offset_of("absent"), std::nullopt);

  const Error too_large = file->get_int("u64").error();
  EXPECT_EQ(too_large.code, ErrorCode::kCorruptFile);
  EXPECT_EQ(too_large.field, "u64");
  EXPECT_EQ(too_large.message,
            fmt::format("f.gguf: u64 at byte {} is uint64 9223372036854775808, expected an integer",
                        writer.offset_of("u64").value()));
  for (const Error& error :
       {file->get_int("flag").error(), file->get_float("u8").error(), file->get_bool("u8").error(),
        file->get_string("u8").error(), file->get_array("text").error()}) {
    EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
    EXPECT_NE(error.message.find("expected"), std::string::npos) << error.message;
  }
}

// --- Hostile files: one field of a valid file is spoilt ---------------------------------------------------

struct Spoilt {
  const char* name;                               // of the test
  std::function<void(Bytes&, GgufWriter&)> edit;  // offsets of the bytes are in the writer
  const char* field;                              // that the error names, and whose offset it tells
  const char* part;                               // of its message
  ErrorCode code = ErrorCode::kCorruptFile;
};

// Overwrites the value at a field.
template <class T>
std::function<void(Bytes&, GgufWriter&)> overwrite(const char* field, T value, uint64_t skip = 0) {
  return [=](Bytes& bytes, GgufWriter& writer) { put(bytes, writer.offset_of(field).value() + skip, value); };
}

class SpoiltFile : public testing::TestWithParam<Spoilt> {};

TEST_P(SpoiltFile, IsRefusedWithFieldAndOffset) {
  const Spoilt& spoilt = GetParam();
  GgufWriter writer = small_writer();
  Bytes bytes = writer.bytes();
  ASSERT_TRUE(GgufFile::parse(bytes, "test.gguf"));
  spoilt.edit(bytes, writer);
  const Error error = error_of(bytes);
  EXPECT_EQ(error.code, spoilt.code);
  EXPECT_EQ(error.field, spoilt.field);
  EXPECT_NE(error.message.find(spoilt.part), std::string::npos) << error.message;
  std::string begin = fmt::format("test.gguf: {} at byte ", spoilt.field);
  // Elements of arrays have no offset of their own in the writer.
  if (const auto offset = writer.offset_of(spoilt.field)) begin += fmt::format("{}: ", *offset);
  EXPECT_TRUE(error.message.starts_with(begin)) << error.message << " | " << begin;
}

INSTANTIATE_TEST_SUITE_P(
    GgufFile, SpoiltFile,
    testing::Values(
        Spoilt{"Magic", overwrite("magic", 'X'), "magic", "\"XGUF\""},
        Spoilt{"OldFormat", overwrite("magic", uint32_t{0x67676a74}), "magic", "before GGUF",
               ErrorCode::kUnsupported},
        Spoilt{"Version1", overwrite("version", uint32_t{1}), "version", "version is 1",
               ErrorCode::kUnsupported},
        Spoilt{"Version4", overwrite("version", uint32_t{4}), "version", "reads 2 to 3",
               ErrorCode::kUnsupported},
        Spoilt{"BigEndian", overwrite("version", uint32_t{0x03000000}), "version", "big-endian",
               ErrorCode::kUnsupported},
        Spoilt{"TensorCountHuge", overwrite("tensor_count", UINT64_MAX), "tensor_count", "the limit is"},
        Spoilt{"TensorCountBeyondFile", overwrite("tensor_count", uint64_t{1000}), "tensor_count",
               "bytes left"},
        Spoilt{"PairCountHuge", overwrite("metadata_kv_count", uint64_t{1} << 60), "metadata_kv_count",
               "the limit is"},
        Spoilt{"PairCountBeyondFile", overwrite("metadata_kv_count", uint64_t{60000}), "metadata_kv_count",
               "bytes left"},
        Spoilt{"KeyEmpty", overwrite("metadata_kv[0].key", uint64_t{0}), "metadata_kv[0].key", "empty"},
        Spoilt{"KeyTooLong", overwrite("metadata_kv[1].key", uint64_t{65536}), "metadata_kv[1].key",
               "the limit is 65535"},
        Spoilt{"KeyBeyondFile", overwrite("metadata_kv[2].key", uint64_t{60000}), "metadata_kv[2].key",
               "the file has"},
        Spoilt{"ValueType", overwrite("metadata_kv[3].value_type", uint32_t{13}), "metadata_kv[3].value_type",
               "type 13"},
        Spoilt{"StringLength", overwrite("general.architecture", UINT64_MAX), "general.architecture",
               "string of 18446744073709551615 bytes"},
        Spoilt{"ArrayElementType", overwrite("test.tokens.element_type", uint32_t{99}),
               "test.tokens.element_type", "type 99"},
        Spoilt{"ArrayCountHuge", overwrite("test.tokens.count", UINT64_MAX), "test.tokens.count",
               "the limit is"},
        Spoilt{"ArrayCountBeyondFile", overwrite("test.tokens.count", uint64_t{100000}), "test.tokens.count",
               "bytes left"},
        Spoilt{"ArrayString", overwrite("test.tokens", uint64_t{1} << 40, 12), "test.tokens[0]",
               "the limit is"},
        Spoilt{"ArraySecondString", overwrite("test.tokens", uint64_t{100000}, 12 + 9), "test.tokens[1]",
               "the file has"},
        Spoilt{"Bool", overwrite("test.flag", uint8_t{2}), "test.flag", "bool is 2"},
        Spoilt{"BoolInArray", overwrite("test.flags", uint8_t{9}, 13), "test.flags[1]", "bool is 9"},
        Spoilt{"AlignmentZero", overwrite("general.alignment", uint32_t{0}), "general.alignment",
               "power of two"},
        Spoilt{"AlignmentOdd", overwrite("general.alignment", uint32_t{48}), "general.alignment",
               "alignment is 48"},
        Spoilt{"AlignmentHuge", overwrite("general.alignment", uint32_t{1} << 31), "general.alignment",
               "power of two"},
        Spoilt{"AlignmentType", overwrite("metadata_kv[1].value_type", uint32_t{6}), "general.alignment",
               "expected a uint32"},
        Spoilt{"TensorNameLong", overwrite("tensor_infos[0].name", uint64_t{65}), "tensor_infos[0].name",
               "the limit is 64"},
        Spoilt{"TensorNameEmpty", overwrite("tensor_infos[0].name", uint64_t{0}), "tensor_infos[0].name",
               "empty"},
        Spoilt{"DimensionCountZero", overwrite("tensor_infos[0].n_dimensions", uint32_t{0}),
               "tensor_infos[0].n_dimensions", "0 dimensions"},
        Spoilt{"DimensionCountFive", overwrite("tensor_infos[1].n_dimensions", uint32_t{5}),
               "tensor_infos[1].n_dimensions", "1 to 4"},
        Spoilt{"DimensionZero", overwrite("tensor_infos[0].dimensions[1]", uint64_t{0}),
               "tensor_infos[0].dimensions[1]", "dimension is 0"},
        Spoilt{"DimensionNegative", overwrite("tensor_infos[0].dimensions[0]", UINT64_MAX),
               "tensor_infos[0].dimensions[0]", "overflow"},
        Spoilt{"DimensionOverflow", overwrite("tensor_infos[0].dimensions[1]", uint64_t{1} << 62),
               "tensor_infos[0].dimensions[1]", "overflow"},
        Spoilt{"SizeOverflow", overwrite("tensor_infos[2].dimensions[0]", (uint64_t{1} << 62)),
               "tensor_infos[2].type", "overflow"},
        Spoilt{"SizeBeyondFile", overwrite("tensor_infos[2].dimensions[0]", uint64_t{6}),
               "tensor_infos[2].offset", "beyond the end"},
        Spoilt{"PartOfABlock", overwrite("tensor_infos[1].dimensions[0]", uint64_t{63}),
               "tensor_infos[1].dimensions[0]", "no multiple of the 32 values"},
        Spoilt{"TypeUnreadable", overwrite("tensor_infos[1].type", uint32_t{16}), "tensor_infos[1].type",
               "type 16 (IQ2_XXS), this build reads F32, F16", ErrorCode::kUnsupported},
        Spoilt{"TypeUnknown", overwrite("tensor_infos[1].type", uint32_t{1000}), "tensor_infos[1].type",
               "type 1000 (unknown)", ErrorCode::kUnsupported},
        Spoilt{"OffsetUnaligned", overwrite("tensor_infos[1].offset", uint64_t{33}), "tensor_infos[1].offset",
               "multiple of the alignment 32"},
        Spoilt{"OffsetBeyondFile", overwrite("tensor_infos[1].offset", uint64_t{1} << 20),
               "tensor_infos[1].offset", "beyond the end"},
        Spoilt{"OffsetOverflow", overwrite("tensor_infos[1].offset", UINT64_MAX - 31),
               "tensor_infos[1].offset", "beyond the end"},
        Spoilt{"Overlap", overwrite("tensor_infos[2].offset", uint64_t{64}), "tensor_infos[2].offset",
               "overlaps tensor second"},
        Spoilt{"SameData", overwrite("tensor_infos[2].offset", uint64_t{0}), "tensor_infos[2].offset",
               "overlaps tensor first"}),
    [](const auto& info) { return std::string(info.param.name); });

// The same for what one field cannot spoil.
TEST(GgufHostile, DuplicatesAreNamed) {
  GgufWriter keys = small_writer();
  keys.add("test.count", uint8_t{1});
  Error error = error_of(keys.bytes());
  EXPECT_EQ(error.field, "metadata_kv[6].key");
  EXPECT_NE(error.message.find("\"test.count\" appears twice"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find(fmt::format("at byte {}:", keys.offset_of("metadata_kv[6].key").value())),
            std::string::npos);

  GgufWriter tensors = small_writer();
  tensors.add_tensor_f32("first", {1}, ramp(1));
  error = error_of(tensors.bytes());
  EXPECT_EQ(error.field, "tensor_infos[3].name");
  EXPECT_NE(error.message.find("first appears twice"), std::string::npos) << error.message;
}

TEST(GgufHostile, NestingHasALimit) {
  GgufEncoded inner = gguf_encode(std::vector<uint8_t>{1});
  for (int depth = 1; depth < kGgufArrayDepthMax; ++depth)
    inner = gguf_encode_array(9, std::span<const GgufEncoded>(&inner, 1));
  GgufWriter fits;
  fits.add_encoded("nested", inner);
  const Bytes bytes = fits.bytes();
  EXPECT_TRUE(GgufFile::parse(bytes, "nested"));
  GgufWriter deeper;
  deeper.add_encoded("nested", gguf_encode_array(9, std::span<const GgufEncoded>(&inner, 1)));
  const Error error = error_of(deeper.bytes());
  EXPECT_EQ(error.field, "nested");
  EXPECT_NE(error.message.find("deeper than 4"), std::string::npos);
}

TEST(GgufHostile, EveryTruncationIsAnError) {
  GgufWriter writer = small_writer();
  const Bytes bytes = writer.bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of its own, so that a sanitizer sees every byte read beyond the end.
    const Bytes part(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    const Error error = error_of(part);
    EXPECT_EQ(error.code, ErrorCode::kCorruptFile) << size;
    EXPECT_FALSE(error.field.empty()) << size;
    EXPECT_NE(error.message.find("at byte "), std::string::npos) << error.message;
  }
}

TEST(GgufHostile, EveryFlippedBitIsReadOrRefused) {
  GgufWriter writer = small_writer();
  const Bytes bytes = writer.bytes();
  const size_t header = writer.offset_of("data[0]").value();
  for (size_t bit = 0; bit < header * 8; ++bit) {
    Bytes spoilt = bytes;
    spoilt[bit / 8] ^= std::byte(1u << (bit % 8));
    auto file = GgufFile::parse(spoilt, "flip");
    if (!file) continue;
    for (const GgufTensor& tensor : file->tensors()) {
      ASSERT_GE(tensor.bytes.data(), spoilt.data());
      ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), spoilt.data() + spoilt.size());
    }
  }
}

TEST(GgufHostile, UnprintableNamesAreEscapedInErrors) {
  GgufWriter writer;
  writer.add(std::string("\x1b[31mred\n"), "x");
  writer.add(std::string("\x1b[31mred\n"), "x");
  const Error error = error_of(writer.bytes());
  EXPECT_NE(error.message.find("\\x1b[31mred\\x0a"), std::string::npos) << error.message;
  EXPECT_EQ(error.message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace quire
