// What the sameness tests share: prompts with the logits that each has alone, and runs that must meet them
// bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "files/gguf_file.h"
#include "tests/model_runner.h"
#include "tests/tiny_model.h"

namespace quire::test {

using Logits = std::vector<float>;  // [position, vocab]

struct Prompt {
  std::vector<TokenId> ids;
  Logits alone;  // the answer to be met bit for bit
};

// A tiny model's file in memory.
class TinyFile {
 public:
  explicit TinyFile(const TinyModel& model) : bytes_(TinyModelWriter(model).bytes()) {
    auto file = GgufFile::parse(bytes_, "tiny");
    CHECK(file.has_value());
    file_ = std::make_unique<GgufFile>(std::move(*file));
  }

  [[nodiscard]] std::unique_ptr<ModelRunner> open(const RunnerOptions& options) const {
    auto runner = ModelRunner::open(*file_, options);
    CHECK(runner.has_value());
    return std::move(*runner);
  }

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<GgufFile> file_;
};

inline std::vector<TokenId> random_ids(std::mt19937& random, int count, int vocab_size) {
  std::uniform_int_distribution<TokenId> token(0, vocab_size - 1);
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = token(random);
  return ids;
}

// One prompt after the other, each in one piece.
inline Logits run_alone(ModelRunner& runner, const std::vector<TokenId>& ids, int chunk) {
  CHECK(runner.reset().has_value());
  TestSequence sequence;
  Logits logits;
  runner.prefill(sequence, ids, chunk, 0, [&](Position position, std::span<const float> row) {
    CHECK(static_cast<size_t>(position) * row.size() == logits.size());
    logits.insert(logits.end(), row.begin(), row.end());
  });
  return logits;
}

inline void expect_same_row(const Prompt& prompt, Position position, std::span<const float> row) {
  const float* expected = prompt.alone.data() + static_cast<size_t>(position) * row.size();
  ASSERT_EQ(std::memcmp(expected, row.data(), row.size_bytes()), 0)
      << "position " << position << ": " << expected[0] << " alone, now " << row[0];
}

// All prompts together, each from where its sequence stands: every step takes a random chunk, or none, of
// each.
inline void continue_together(ModelRunner& runner, const std::vector<Prompt>& prompts,
                              std::vector<TestSequence> sequences, unsigned seed) {
  std::mt19937 random(seed);
  auto left = [&](size_t index) {
    return static_cast<int>(prompts[index].ids.size()) - sequences[index].length;
  };
  while (true) {
    std::vector<StepPart> parts;
    std::vector<size_t> owners;
    int budget = runner.chunk_max();
    int open = 0;
    for (size_t index = 0; index < prompts.size(); ++index) {
      open += left(index);
      // Often a single token, as in decode.
      int chunk = random() % 2 == 0 ? 1 : static_cast<int>(random() % 60);
      chunk = std::min({chunk, left(index), budget});
      if (chunk == 0) continue;
      budget -= chunk;
      owners.push_back(index);
      parts.push_back(
          {&sequences[index], std::span(prompts[index].ids).subspan(sequences[index].length, chunk), 0});
    }
    if (open == 0) return;
    if (parts.empty()) continue;
    LogitsView logits = runner.step(parts);
    int row = 0;
    for (size_t part = 0; part < parts.size(); ++part) {
      auto count = static_cast<Position>(parts[part].tokens.size());
      Position first = sequences[owners[part]].length - count;
      for (Position i = 0; i < count; ++i) {
        ASSERT_NO_FATAL_FAILURE(expect_same_row(prompts[owners[part]], first + i, logits.row(row++)));
      }
    }
  }
}

inline void run_together(ModelRunner& runner, const std::vector<Prompt>& prompts, unsigned seed) {
  CHECK(runner.reset().has_value());
  continue_together(runner, prompts, std::vector<TestSequence>(prompts.size()), seed);
}

}  // namespace quire::test
