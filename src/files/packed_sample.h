// For tests: a small plan, its bytes, and a folder of its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "files/packed_cache.h"

namespace quire {

// A folder that goes away with the object.
class SampleFolder {
 public:
  SampleFolder() {
    static std::atomic<int> count = 0;
    path_ = testing::TempDir() + "packed_" + std::to_string(getpid()) + "_" + std::to_string(count++);
    std::filesystem::create_directories(path_);
  }
  ~SampleFolder() { std::filesystem::remove_all(path_); }
  SampleFolder(const SampleFolder&) = delete;
  SampleFolder& operator=(const SampleFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int count(std::string_view part) const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      count += entry.path().filename().string().contains(part) ? 1 : 0;
    return count;
  }

 private:
  std::string path_;
};

// Three sections with a gap between them, of random bytes.
struct PackedSample {
  PackedPlan plan;
  std::vector<std::byte> data;
  std::vector<ContentHash> hashes;
  ContentHash source;
  ContentHash state{.low = 5, .high = 7};

  explicit PackedSample(unsigned seed = 1, uint64_t bytes = 9000) {
    plan = {.layout = "rows16", .layout_version = 1, .model = "sample", .sections = {}, .key = {seed, 99}};
    const uint64_t sizes[] = {100, bytes, 4096};
    for (uint64_t size : sizes) {
      plan.sections.push_back({.name = "tensor." + std::to_string(plan.sections.size()),
                               .type = 2,
                               .out = 16,
                               .in = 32,
                               .offset = plan.data_bytes,
                               .bytes = size,
                               .piece_bytes = 1000});
      plan.data_bytes += (size + 63) / 64 * 64;
    }
    std::mt19937 random(seed);
    data.resize(plan.data_bytes);
    for (const PackedSection& section : plan.sections) {
      std::vector<ContentHash> pieces;
      for (uint64_t i = 0; i < section.bytes; ++i) data[section.offset + i] = std::byte(random());
      for (uint64_t i = 0; i < section.bytes; i += section.piece_bytes)
        pieces.push_back(content_hash(
            std::span(data).subspan(section.offset + i, std::min(section.piece_bytes, section.bytes - i))));
      hashes.push_back(content_hash(pieces));
    }
    source = content_hash(data);
  }

  Result<PackedFile> write(const PackedCache& cache) const {
    PackedWriter writer = TRY(cache.begin(plan));
    for (const PackedSection& section : plan.sections)
      TRY(writer.write(section.offset, std::span(data).subspan(section.offset, section.bytes)));
    return writer.publish({.source = source, .sections = hashes, .seen = state});
  }
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A new file each time: to write one over would wait for the disk.
inline void write_bytes(const std::string& path, std::string_view bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace quire
