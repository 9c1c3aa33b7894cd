// The hyper-parameters of a model file: typed, range-checked, and none overlooked.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "files/gguf_file.h"

namespace quire {

struct IntRange {
  int min;
  int max;
};

// Both ends are allowed.
struct FloatRange {
  double min;
  double max;
};

// Reads the keys "<architecture>.*" of one file and keeps account of them: a key that nobody read may switch
// on a feature that this build does not have, so refuse_unread() makes it an error. Errors are kCorruptFile
// unless said otherwise and name the key, its value, its offset and what was expected. Keys are given
// without the architecture's prefix.
class HyperParameters {
 public:
  // `file` outlives the object.
  HyperParameters(const GgufFile& file, std::string_view architecture);

  [[nodiscard]] const GgufFile& file() const { return file_; }
  [[nodiscard]] const std::string& architecture() const { return architecture_; }
  [[nodiscard]] std::string full_key(std::string_view key) const;

  // A key that has to be there.
  Result<int> integer(std::string_view key, IntRange range);
  Result<double> number(std::string_view key, FloatRange range);
  // Absent: nullopt.
  Result<std::optional<int>> optional_integer(std::string_view key, IntRange range);
  Result<std::optional<double>> optional_number(std::string_view key, FloatRange range);
  Result<std::optional<bool>> optional_flag(std::string_view key);
  Result<std::optional<std::string_view>> optional_string(std::string_view key);
  // One integer for all layers, or an array of one a layer. Absent: nullopt.
  struct PerLayer {
    int layers;
    IntRange range;
  };
  Result<std::optional<std::vector<int>>> optional_per_layer(std::string_view key, PerLayer shape);
  // The key holds an array rather than one value.
  [[nodiscard]] bool is_array(std::string_view key) const;
  // An array of bools, one a layer; is_array(key) holds.
  Result<std::vector<bool>> flags_per_layer(std::string_view key, int layers);

  // Marks keys that change nothing in how the model computes. A key that ends in '.' stands for all that
  // begin with it.
  void ignore(std::string_view key);
  // kUnsupported, naming a key that was neither read nor ignored.
  [[nodiscard]] Result<void> refuse_unread() const;

  // An error about a key that is there.
  [[nodiscard]] std::unexpected<Error> wrong(ErrorCode code, std::string_view key,
                                             std::string_view text) const;
  [[nodiscard]] std::unexpected<Error> missing(std::string_view key) const;

 private:
  const GgufFile& file_;
  std::string architecture_;
  std::set<std::string, std::less<>> read_;    // full keys
  std::vector<std::string> ignored_prefixes_;  // full
};

}  // namespace quire
