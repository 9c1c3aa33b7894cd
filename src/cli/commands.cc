#include "cli/commands.h"

namespace quire {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"run", "Answer one prompt, or chat on a terminal", declare_run},
      {"info", "Describe a model file, or this machine", declare_info},
      {"tokenize", "Show token ids and pieces of a text", declare_tokenize},
      {"template", "Render a chat template", declare_template},
      {"logits", "Log-probabilities at every position of a text", declare_logits},
      {"perplexity", "Mean negative log-likelihood of a text file", declare_perplexity},
      {"cache", "Show, verify or clear the cache of packed weights", declare_cache},
      {"bench", "Measure speed", declare_bench},
  };
  return kCommands;
}

}  // namespace quire
