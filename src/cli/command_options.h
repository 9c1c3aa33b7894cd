// Options that commands declare, each value checked against its range while it is parsed. The only door to
// the parser library: command files see its classes by name alone, which keeps them quick to compile.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "cli/output.h"
#include "quire/engine.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire {

enum class Bound { kIncluded, kExcluded };

// The range of a numeric option.
template <class T>
struct NumberRange {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
  Bound lower = Bound::kIncluded;

  [[nodiscard]] bool holds(T value) const {
    bool above = lower == Bound::kIncluded ? value >= min : value > min;
    return above && value <= max;
  }
  [[nodiscard]] std::string text() const {
    if (max == std::numeric_limits<T>::max()) {
      return fmt::format("{} {}", lower == Bound::kIncluded ? "at least" : "above", min);
    }
    return fmt::format("{}{}, {}]", lower == Bound::kIncluded ? "[" : "(", min, max);
  }
};

// The whole of `text` as a number in `range`. Error kInvalidArgument: field `name`, value and limit named.
template <class T>
Result<T> parse_number(std::string_view text, const NumberRange<T>& range, const std::string& name) {
  T value{};
  const char* end = text.data() + text.size();
  auto [stop, fault] = std::from_chars(text.data(), end, value);
  bool whole = stop == end && !text.empty();
  if (fault == std::errc::invalid_argument || !whole) {
    return fail(ErrorCode::kInvalidArgument, name, "{}: '{}' is not a{} number", name, text,
                std::is_integral_v<T> ? " whole" : "");
  }
  if (fault != std::errc{} || !range.holds(value)) {
    return fail(ErrorCode::kInvalidArgument, name, "{}: {} is out of range, must be {}", name, text,
                range.text());
  }
  return value;
}

// One option: its flags as "-n,--tokens" (or a bare name for a positional), its help, what stands for its
// value.
struct OptionSpec {
  std::string flags;
  std::string help;
  std::string type = "TEXT";
};

// A numeric option. `target` (a T or an std::optional<T>) holds the default and outlives parsing.
// Instantiated for int, float and uint64_t.
template <class T, class Target>
CLI::Option* add_number(CLI::App& app, const OptionSpec& spec, const NumberRange<T>& range, Target& target);

// A string that may begin with anything; given at most once.
CLI::Option* add_text(CLI::App& app, const OptionSpec& spec, std::optional<std::string>& target);
// The same with a default.
CLI::Option* add_text(CLI::App& app, const OptionSpec& spec, std::string& target);
// One that must be given.
void add_required_text(CLI::App& app, const OptionSpec& spec, std::string& target);
// One that may be repeated; `add` takes one value and may refuse it.
void add_repeated(CLI::App& app, const OptionSpec& spec, std::function<Result<void>(const std::string&)> add);
void add_flag(CLI::App& app, const OptionSpec& spec, std::function<void()> set);
// "1,2,4": whole numbers, each in `range`.
void add_numbers(CLI::App& app, const OptionSpec& spec, const NumberRange<int>& range,
                 std::vector<int>& target);
// --json.
void add_json(CLI::App& app, OutputFormat& format);
// Not both may be given.
void exclude(CLI::Option* one, CLI::Option* other);
[[nodiscard]] bool was_given(const CLI::Option* option);

// What stands at the end of the help.
void set_footer(CLI::App& app, const std::string& text);
// A command below a command; one of them must be named.
CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& summary);
[[nodiscard]] bool was_chosen(const CLI::App& command);

// MODEL and the options of every command that runs it.
struct ModelArguments {
  std::string model;
  EngineOptions engine;
  std::optional<std::string> kv_type;       // absent: f16, or f32 with --exact
  std::optional<std::string> packed_cache;  // a folder or "off"; absent: default_packed_cache()
};
void add_model_options(CLI::App& app, ModelArguments& arguments);

// --packed-cache, and the folder that it means: "" = off. Error: an empty name.
void add_packed_cache(CLI::App& app, std::optional<std::string>& target);
[[nodiscard]] Result<std::string> packed_cache_folder(const std::optional<std::string>& given);

// The options with MODEL's path and the defaults that depend on others. Errors name the option.
[[nodiscard]] Result<EngineOptions> engine_options(const ModelArguments& arguments);

// Loads the model, with a notice on a terminal while it takes.
[[nodiscard]] Result<std::unique_ptr<Engine>> open_engine(const ModelArguments& arguments);
[[nodiscard]] Result<std::unique_ptr<Engine>> open_engine(EngineOptions options);

}  // namespace quire
