#include "cli/command_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "core/kv_geometry.h"
#include "engine/machine.h"
#include "engine/model_package.h"

namespace quire {
namespace {

// The parser's own way to refuse a value; program.cc turns it into an error line.
[[noreturn]] void refuse(const Error& error) {
  throw CLI::ParseError(error.message, CLI::ExitCodes::ValidationError);
}

}  // namespace

template <class T, class Target>
CLI::Option* add_number(CLI::App& app, const OptionSpec& spec, const NumberRange<T>& range, Target& target) {
  std::string name = spec.flags.substr(spec.flags.find("--"));
  auto store = [&target, name, range](const std::string& text) {
    Result<T> value = parse_number<T>(text, range, name);
    if (!value) refuse(value.error());
    target = *value;
  };
  auto* added = app.add_option_function<std::string>(spec.flags, store, spec.help);
  added->type_name(spec.type);
  if constexpr (std::is_same_v<T, Target>) added->default_str(fmt::format("{}", target));
  return added;
}

template CLI::Option* add_number(CLI::App&, const OptionSpec&, const NumberRange<int>&, int&);
template CLI::Option* add_number(CLI::App&, const OptionSpec&, const NumberRange<int>&, std::optional<int>&);
template CLI::Option* add_number(CLI::App&, const OptionSpec&, const NumberRange<float>&, float&);
template CLI::Option* add_number(CLI::App&, const OptionSpec&, const NumberRange<float>&,
                                 std::optional<float>&);
template CLI::Option* add_number(CLI::App&, const OptionSpec&, const NumberRange<uint64_t>&, uint64_t&);
template CLI::Option* add_number(CLI::App&, const OptionSpec&, const NumberRange<uint64_t>&,
                                 std::optional<uint64_t>&);

CLI::Option* add_text(CLI::App& app, const OptionSpec& spec, std::optional<std::string>& target) {
  auto store = [&target](const std::string& text) { target = text; };
  return app.add_option_function<std::string>(spec.flags, store, spec.help)->type_name(spec.type);
}

CLI::Option* add_text(CLI::App& app, const OptionSpec& spec, std::string& target) {
  auto store = [&target](const std::string& text) { target = text; };
  auto* added = app.add_option_function<std::string>(spec.flags, store, spec.help)->type_name(spec.type);
  if (!target.empty()) added->default_str(target);
  return added;
}

void add_required_text(CLI::App& app, const OptionSpec& spec, std::string& target) {
  add_text(app, spec, target)->required();
}

void add_repeated(CLI::App& app, const OptionSpec& spec,
                  std::function<Result<void>(const std::string&)> add) {
  CLI::callback_t store = [add = std::move(add)](const CLI::results_t& values) {
    for (const std::string& value : values) {
      Result<void> added = add(value);
      if (!added) refuse(added.error());
    }
    return true;
  };
  app.add_option(spec.flags, store, spec.help)
      ->type_name(spec.type)
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_flag(CLI::App& app, const OptionSpec& spec, std::function<void()> set) {
  app.add_flag_callback(spec.flags, std::move(set), spec.help);
}

void add_numbers(CLI::App& app, const OptionSpec& spec, const NumberRange<int>& range,
                 std::vector<int>& target) {
  std::string name = spec.flags.substr(spec.flags.find("--"));
  auto store = [&target, name, range](const std::string& text) {
    target.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      Result<int> value = parse_number<int>(std::string_view(text).substr(begin, end - begin), range, name);
      if (!value) refuse(value.error());
      target.push_back(*value);
      begin = end + 1;
    }
  };
  app.add_option_function<std::string>(spec.flags, store, spec.help)
      ->type_name(spec.type)
      ->default_str(fmt::format("{}", fmt::join(target, ",")));
}

void add_json(CLI::App& app, OutputFormat& format) {
  add_flag(app, {"--json", "Print one JSON object on stdout; faults too"},
           [&format] { format = OutputFormat::kJson; });
}

void exclude(CLI::Option* one, CLI::Option* other) {
  one->excludes(other);
}

bool was_given(const CLI::Option* option) {
  return !option->empty();
}

bool was_chosen(const CLI::App& command) {
  return command.parsed();
}

void set_footer(CLI::App& app, const std::string& text) {
  app.footer(text);
}

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& summary) {
  app.require_subcommand(1);
  return *app.add_subcommand(name, summary);
}

void add_packed_cache(CLI::App& app, std::optional<std::string>& target) {
  add_text(app,
           {"--packed-cache",
            "Folder that keeps packed weights for the next start, or 'off' (default: $QUIRE_PACKED, else "
            "~/.cache/quire/packed)",
            "DIR"},
           target);
}

Result<std::string> packed_cache_folder(const std::optional<std::string>& given) {
  if (!given) return default_packed_cache();
  if (given->empty()) {
    return fail(ErrorCode::kInvalidArgument, "--packed-cache",
                "--packed-cache: the name of the folder is empty; 'off' keeps none");
  }
  return *given == "off" ? std::string() : *given;
}

void add_model_options(CLI::App& app, ModelArguments& arguments) {
  EngineOptions& engine = arguments.engine;
  add_required_text(app, {"model", "A GGUF file, or the name of a model in the cache", "MODEL"},
                    arguments.model);
  add_number<int>(app, {"--threads", "Worker threads; 0 = one per usable CPU", "N"}, {.min = 0, .max = 1024},
                  engine.threads);
  add_text(
      app,
      {"--isa", "Instruction set of the kernels (quire info --isas lists them; default: the best)", "NAME"},
      engine.isa);
  add_text(app,
           {"--kv-type", "How K and V are stored: " + kv_type_names() + " (default: f16; f32 with --exact)",
            "TYPE"},
           arguments.kv_type);
  add_flag(app, {"--exact", "float32 activations and arithmetic throughout"},
           [&engine] { engine.exact = true; });
  add_number<int>(
      app,
      {"--context", "Most tokens of one sequence, prompt and answer; 0 = what the model was made for", "N"},
      {.min = 0}, engine.context_length);
  add_packed_cache(app, arguments.packed_cache);
  add_number<uint64_t>(app,
                       {"--packed-cache-bytes",
                        "Most that this folder holds; what was not used for longest goes first", "BYTES"},
                       {}, engine.packed_cache_bytes);
}

namespace {

// The engine would refuse them too, but could not name the option.
Result<void> check_names(const ModelArguments& arguments) {
  if (arguments.kv_type && !kv_type_from_name(*arguments.kv_type)) {
    return fail(ErrorCode::kInvalidArgument, "--kv-type", "--kv-type: '{}' is not known; known are {}",
                *arguments.kv_type, kv_type_names());
  }
  const std::string& isa = arguments.engine.isa;
  std::vector<std::string> isas = describe_machine().isas;
  if (!isa.empty() && std::ranges::find(isas, isa) == isas.end()) {
    return fail(ErrorCode::kInvalidArgument, "--isa", "--isa: '{}' cannot run here; what can: {}", isa,
                fmt::join(isas, ", "));
  }
  return {};
}

}  // namespace

Result<EngineOptions> engine_options(const ModelArguments& arguments) {
  TRY(check_names(arguments));
  EngineOptions options = arguments.engine;
  options.packed_cache = TRY(packed_cache_folder(arguments.packed_cache));
  options.model_path = TRY(resolve_model(arguments.model));
  options.kv_type = arguments.kv_type.value_or(options.exact ? "f32" : "f16");
  return options;
}

Result<std::unique_ptr<Engine>> open_engine(const ModelArguments& arguments) {
  return open_engine(TRY(engine_options(arguments)));
}

Result<std::unique_ptr<Engine>> open_engine(EngineOptions options) {
  bool notice = stderr_is_terminal();
  if (notice) fmt::print(stderr, "loading {} …", options.model_path);
  if (notice) std::fflush(stderr);
  auto engine = Engine::open(std::move(options));
  if (notice) fmt::print(stderr, "\r\x1b[K");
  if (engine) {
    const ModelInfo& model = (*engine)->model();
    if (!model.packed_cache_notice.empty())
      fmt::print(stderr, "packed cache: {}\n", model.packed_cache_notice);
  }
  return engine;
}

}  // namespace quire
