// The table of commands. One file per command declares its options and holds its body.
#pragma once

#include <functional>
#include <span>

#include "base/result.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire {

// Exit statuses of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFault = 1;          // the world refused: a file, memory, a template …
inline constexpr int kExitUsage = 2;          // an option or value that cannot be
inline constexpr int kExitInterrupted = 130;  // Ctrl-C
inline constexpr int kExitBrokenPipe = 141;   // the reader of stdout went away

// What a command does once its options are parsed; the result is the exit status.
using CommandBody = std::function<Result<int>()>;

struct Command {
  const char* name;
  const char* summary;
  CommandBody (*declare)(CLI::App& app);  // the body reads what parsing stored
};

// In the order of `quire --help`.
[[nodiscard]] std::span<const Command> commands();

CommandBody declare_run(CLI::App& app);
CommandBody declare_logits(CLI::App& app);
CommandBody declare_perplexity(CLI::App& app);
CommandBody declare_tokenize(CLI::App& app);
CommandBody declare_template(CLI::App& app);
CommandBody declare_info(CLI::App& app);
CommandBody declare_cache(CLI::App& app);
CommandBody declare_bench(CLI::App& app);

}  // namespace quire
