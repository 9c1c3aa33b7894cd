// Loading: what is refused, and what stays in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "files/packed_sample.h"
#include "model/weights.h"
#include "tests/data_paths.h"
#include "tests/model_runner.h"
#include "tests/tiny_model.h"

namespace quire::test {
namespace {

Result<std::unique_ptr<ModelRunner>> open_tiny(const std::vector<std::byte>& bytes) {
  GgufFile file = TRY(GgufFile::parse(bytes, "tiny"));
  return ModelRunner::open(file, {.threads = 2, .kv_tokens = 64});
}

// The bytes of a tiny model after `change` of its writer.
template <class Change>
std::vector<std::byte> changed(const TinyModel& model, Change change) {
  TinyModelWriter writer(model);
  (void)writer.bytes();
  change(writer.writer());
  return writer.writer().bytes();
}

TEST(ModelLoad, NamesAMissingTensor) {
  auto bytes = changed({}, [](GgufWriter& writer) {
    std::erase_if(writer.tensors(), [](const GgufTensorData& t) { return t.name == "blk.1.ffn_up.weight"; });
  });
  auto runner = open_tiny(bytes);
  ASSERT_FALSE(runner.has_value());
  EXPECT_EQ(runner.error().code, ErrorCode::kCorruptFile);
  EXPECT_NE(runner.error().message.find("blk.1.ffn_up.weight"), std::string::npos) << runner.error().message;
}

TEST(ModelLoad, NamesAMisshapenTensorWithBothShapes) {
  auto bytes = changed({}, [](GgufWriter& writer) {
    for (GgufTensorData& tensor : writer.tensors()) {
      if (tensor.name == "blk.0.attn_output.weight") std::swap(tensor.shape[0], tensor.shape[1]);
    }
  });
  auto runner = open_tiny(bytes);
  ASSERT_FALSE(runner.has_value());
  EXPECT_EQ(runner.error().code, ErrorCode::kCorruptFile);
  for (std::string part : {"blk.0.attn_output.weight", "64", "96"}) {
    EXPECT_NE(runner.error().message.find(part), std::string::npos) << runner.error().message;
  }
}

TEST(ModelLoad, NamesAnUnknownArchitectureAndTheKnownOnes) {
  auto bytes = changed({}, [](GgufWriter& writer) { writer.set("general.architecture", "abacus"); });
  auto runner = open_tiny(bytes);
  ASSERT_FALSE(runner.has_value());
  EXPECT_EQ(runner.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(runner.error().message.find("abacus"), std::string::npos) << runner.error().message;
  for (std::string_view known : known_architectures()) {
    EXPECT_NE(runner.error().message.find(known), std::string::npos) << runner.error().message;
  }
}

// Every tensor type: the packed matrix holds the values of the file, whoever packed which panel.
TEST(ModelLoad, PacksWhatTheFileHolds) {
  for (const TensorTypeInfo& info : tensor_types()) {
    TinyModel model{.width = 256,
                    .heads = 4,
                    .head_dim = 64,
                    .ffn_width = 256,
                    .vocab_size = 37,
                    .type = info.type,
                    .other_type = info.type};
    std::vector<std::byte> bytes = TinyModelWriter(model).bytes();
    auto file = GgufFile::parse(bytes, "tiny");
    ASSERT_TRUE(file.has_value()) << info.name << ": " << file.error().message;
    auto spec = read_model_spec(*file);
    ASSERT_TRUE(spec.has_value());
    ThreadPool pool(3);
    auto weights = Weights::load(*file, *spec, pool);
    ASSERT_TRUE(weights.has_value());
    const GgufTensor& tensor = *file->find_tensor("token_embd.weight");
    std::vector<float> expected(model.width);
    std::vector<float> unpacked(model.width);
    size_t row_bytes = tensor.bytes.size() / model.vocab_size;
    for (int row = 0; row < model.vocab_size; ++row) {
      dequantize_row(info.type, tensor.bytes.subspan(row * row_bytes, row_bytes), expected);
      find_kernels("scalar")->unpack_row(weights->embedding(), row, unpacked.data());
      ASSERT_EQ(unpacked, expected) << info.name << " row " << row;
    }
    EXPECT_EQ(weights->head().matrix.data, weights->embedding().data);  // tied
  }
}

// --- memory ---

// A line of /proc/self/status in bytes.
size_t memory_status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

// What loading `model` through a cache adds to resident memory, besides the weights themselves.
struct LoadMemory {
  size_t peak = 0;
  size_t after = 0;
  size_t weights = 0;
  size_t largest_tensor = 0;
};

Result<LoadMemory> load_memory(const std::string& model, const PackedCacheOptions& cache) {
  GgufFile file = TRY(GgufFile::open(model));
  LoadMemory memory;
  for (const GgufTensor& tensor : file.tensors())
    memory.largest_tensor = std::max(memory.largest_tensor, tensor.bytes.size());
  const ModelSpec spec = TRY(read_model_spec(file));
  ThreadPool pool(2);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
  const size_t before = memory_status("VmRSS");
  const Weights weights = TRY(Weights::load(file, spec, pool, cache));
  memory.weights = weights.bytes();
  memory.peak = memory_status("VmHWM") - before;
  memory.after = std::max(memory_status("VmRSS"), before) - before;
  return memory;
}

constexpr size_t kMegabyte = size_t{1} << 20;

TEST(ModelLoad, NeverHoldsTwoCopies) {
  std::string path = model_path("SmolLM2-135M-Instruct.Q4_1.gguf");
  SKIP_WITHOUT(path);
  const auto memory = load_memory(path, {});
  ASSERT_TRUE(memory.has_value());
  EXPECT_LE(memory->peak, memory->weights + 64 * kMegabyte + memory->largest_tensor);
  EXPECT_LE(memory->after, memory->weights + 8 * kMegabyte);
}

// On its way into the cache a model is not even once in memory, and a start that finds it there touches
// nothing.
TEST(ModelLoad, StreamsIntoTheCache) {
  std::string path = model_path("SmolLM2-135M-Instruct.Q4_1.gguf");
  SKIP_WITHOUT(path);
  const SampleFolder folder;
  const PackedCacheOptions cache{.folder = folder.path(), .bytes_max = size_t{1} << 40};
  const auto first = load_memory(path, cache);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(folder.count(".packed"), 1);
  EXPECT_LE(first->peak, 64 * kMegabyte + first->largest_tensor);
  EXPECT_LE(first->after, 8 * kMegabyte);
  const auto second = load_memory(path, cache);
  ASSERT_TRUE(second.has_value());
  EXPECT_LE(second->peak, 64 * kMegabyte);
  EXPECT_LE(second->after, 8 * kMegabyte);
}

}  // namespace
}  // namespace quire::test
