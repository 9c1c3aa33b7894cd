#include "cli/program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/output.h"

namespace quire {
namespace {

constexpr const char* kFooter =
    "MODEL is a GGUF file (the first part of a split one), or the name of a model in the cache\n"
    "($QUIRE_MODELS, default ~/.cache/quire/models). Packed weights are kept in $QUIRE_PACKED (default\n"
    "~/.cache/quire/packed; 'off' keeps none). Answers and numbers go to stdout, progress and faults to\n"
    "stderr. Exit status: 0 ok, 1 fault, 2 usage, 130 Ctrl-C, 141 the reader went away.";

struct DeclaredCommand {
  CLI::App* app;
  CommandBody body;
};

// Whether "--json" stands among the arguments: parsing may have failed before it was read.
bool wants_json(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--") == 0) return false;
    if (std::strcmp(argv[i], "--json") == 0) return true;
  }
  return false;
}

// The innermost command that was named, for the hint about --help.
std::string command_path(const CLI::App& root) {
  std::string path = "quire";
  const CLI::App* app = &root;
  while (true) {
    auto chosen = app->get_subcommands();
    if (chosen.empty()) return path;
    app = chosen.front();
    path += " " + app->get_name();
  }
}

std::string command_names() {
  std::string names;
  for (const Command& command : commands()) names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

Error extras_error(const CLI::App& root) {
  std::vector<std::string> extras = root.remaining(true);
  std::string first = extras.empty() ? "" : extras.front();
  std::string path = command_path(root);
  if (first.starts_with("-") && first.size() > 1) {
    std::string name = first.substr(0, first.find('='));
    return {ErrorCode::kInvalidArgument, fmt::format("unknown option {} (see {} --help)", name, path), name};
  }
  if (path == "quire") {
    return {ErrorCode::kInvalidArgument,
            fmt::format("unknown command '{}'; commands: {}", first, command_names()), "command"};
  }
  return {ErrorCode::kInvalidArgument, fmt::format("unexpected argument '{}' (see {} --help)", first, path),
          first};
}

// The option that a message of the parser begins with or names.
std::string field_of(std::string_view message) {
  size_t begin = message.find("--");
  if (begin == std::string_view::npos) return "";
  size_t end = message.find_first_of(" :,=", begin);
  return std::string(message.substr(begin, end == std::string_view::npos ? end : end - begin));
}

Error parse_error(const CLI::App& root, const CLI::ParseError& fault) {
  if (dynamic_cast<const CLI::ExtrasError*>(&fault) != nullptr) return extras_error(root);
  std::string message = fault.what();
  std::string path = command_path(root);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&fault) != nullptr) {
    std::string field = field_of(message);
    const char* reason = message.ends_with("missing") ? "its value is missing" : "given more than once";
    return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", field, reason), field};
  }
  if (dynamic_cast<const CLI::RequiredError*>(&fault) != nullptr)
    message += fmt::format(" (see {} --help)", path);
  return {ErrorCode::kInvalidArgument, message, field_of(message)};
}

int report(const Error& error, bool json) {
  if (error.code == ErrorCode::kCancelled && error.field == kStdoutField) return kExitBrokenPipe;
  std::string line = error.message;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  fmt::print(stderr, "quire: {}\n", line);
  if (json) {
    auto written = write_out(error_json(error) + "\n");
    if (!written) return kExitBrokenPipe;
  }
  return exit_status_of(error);
}

int run_chosen(const std::vector<DeclaredCommand>& declared, bool json) {
  for (const auto& [app, body] : declared) {
    if (!app->parsed()) continue;
    Result<int> status = body();
    return status ? *status : report(status.error(), json);
  }
  return kExitUsage;
}

int parse_and_run(int argc, const char* const* argv) {
  bool json = wants_json(argc, argv);
  CLI::App root("Quire: language models on this machine, their KV cache in pages.", "quire");
  root.get_formatter()->column_width(34);
  root.set_version_flag("--version", "quire " QUIRE_VERSION, "Print the version");
  root.set_help_flag("-h,--help", "Print this help");
  root.footer(kFooter);
  root.require_subcommand(0, 1);
  std::vector<DeclaredCommand> declared;
  for (const Command& command : commands()) {
    CLI::App* app = root.add_subcommand(command.name, command.summary);
    declared.push_back({app, command.declare(*app)});
  }
  try {
    root.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help and --version
    return root.exit(success);
  } catch (const CLI::ParseError& fault) {
    return report(parse_error(root, fault), json);
  }
  if (root.get_subcommands().empty()) {
    fmt::print(stderr, "{}", root.help());
    return kExitUsage;
  }
  return run_chosen(declared, json);
}

}  // namespace

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorruptFile:
      return "corrupt_file";
    case ErrorCode::kResourceExhausted:
      return "resource_exhausted";
    case ErrorCode::kOverloaded:
      return "overloaded";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

int exit_status_of(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFault;
}

std::string error_json(const Error& error) {
  namespace json = boost::json;
  json::object fields{
      {"message", error.message}, {"field", error.field}, {"code", std::string(error_code_name(error.code))}};
  return to_json(json::object{{"error", std::move(fields)}});
}

int run_program(int argc, const char* const* argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    return report({ErrorCode::kResourceExhausted, "out of memory", ""}, wants_json(argc, argv));
  }
}

}  // namespace quire
