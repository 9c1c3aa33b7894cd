#include "cli/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/line_reader.h"
#include "cli/output.h"

namespace quire {
namespace {

constexpr const char* kHelp =
    "/help          this list\n"
    "/clear         forget the conversation\n"
    "/system TEXT   set the system message (nothing: remove it)\n"
    "/stats         figures of the last answer, of the conversation and of the KV pools\n"
    "/quit          leave (also Ctrl-D)\n"
    "//TEXT         a message that begins with a slash\n"
    "A line that ends in \\ goes on in the next. Ctrl-C stops an answer, or clears the line.\n";

// One chat: reads, answers, keeps the history. The command's thread.
class Chat {
 public:
  explicit Chat(ChatSetup setup) : setup_(std::move(setup)), lines_(*setup_.interrupts) {}

  Result<int> run() {
    std::optional<Interrupts::PromptGuard> listening;
    if (lines_.is_interactive()) {
      listening.emplace(*setup_.interrupts);
      greet();
    }
    while (true) {
      LineInput input = lines_.read();
      if (input.kind == LineInput::Kind::kEnd) return kExitOk;
      if (input.kind == LineInput::Kind::kInterrupted) continue;
      if (input.text.find_first_not_of(" \t") == std::string::npos) continue;
      if (input.text == "/quit" || input.text == "/exit") return kExitOk;
      if (input.text.starts_with("/") && !input.text.starts_with("//")) {
        TRY(obey(input.text));
        continue;
      }
      TRY(answer(input.text.starts_with("//") ? input.text.substr(1) : input.text));
    }
  }

 private:
  void greet() {
    const ModelInfo& model = setup_.engine->model();
    fmt::print(stderr, "{} · {} · context {} tokens · KV {} · /help for help\n",
               model.name.empty() ? model.architecture : model.name, human_bytes(model.weight_bytes),
               model.context_length, model.kv_type);
  }

  Result<void> obey(const std::string& line) {
    size_t blank = line.find(' ');
    std::string command = line.substr(0, blank);
    std::string rest = blank == std::string::npos ? "" : line.substr(blank + 1);
    if (command == "/help") return write_out(kHelp);
    if (command == "/stats") return write_out(stats());
    if (command == "/clear") {
      setup_.conversation.clear();
      return write_out("conversation forgotten\n");
    }
    if (command == "/system") {
      setup_.conversation.set_system(rest);
      return write_out(rest.empty() ? "no system message\n" : "system message set\n");
    }
    return write_out(fmt::format("unknown command {}; /help lists them\n", command));
  }

  std::string stats() const {
    std::string text;
    if (last_) text += fmt::format("last answer: {}\n", figures_line(*last_, setup_.engine->model()));
    text += fmt::format(
        "conversation: {} messages, {} tokens answered, {} of {} prompt tokens from the cache\n",
        setup_.conversation.size(), total_.completion_tokens, total_.cached_tokens, total_.prompt_tokens);
    for (const PoolStats& pool : setup_.engine->stats().pools) {
      text += fmt::format("KV pool: {} blocks of {}, {} free, {} open, {} pinned, {} idle\n", pool.total,
                          human_bytes(static_cast<double>(pool.block_bytes)), pool.free, pool.open,
                          pool.pinned, pool.idle);
    }
    return text;
  }

  Result<void> answer(std::string text) {
    setup_.conversation.add({"user", std::move(text)});
    Result<Answer> answered = ask();
    if (!answered) {
      if (answered.error().field == kStdoutField) return std::unexpected(answered.error());
      setup_.conversation.drop_last();
      fmt::print(stderr, "quire: {}\n", answered.error().message);
      return {};
    }
    TRY(write_out("\n"));
    if (answered->finish == FinishReason::kCancelled) fmt::print(stderr, "(stopped)\n");
    if (answered->finish == FinishReason::kLength) {
      fmt::print(stderr, "(cut after {} tokens)\n", answered->summary.usage.completion_tokens);
    }
    setup_.conversation.add({"assistant", answered->text});
    const Usage& usage = answered->summary.usage;
    total_.prompt_tokens += usage.prompt_tokens;
    total_.cached_tokens += usage.cached_tokens;
    total_.completion_tokens += usage.completion_tokens;
    last_ = std::move(*answered);
    return {};
  }

  Result<Answer> ask() {
    Request request;
    request.prompt_token_ids = TRY(setup_.conversation.prompt());
    request.sampling = setup_.sampling;
    int room = setup_.engine->model().context_length - static_cast<int>(request.prompt_token_ids.size());
    if (room < 1) {
      return fail(ErrorCode::kResourceExhausted, "--context",
                  "the conversation of {} tokens fills the context of {}; /clear forgets it",
                  request.prompt_token_ids.size(), setup_.engine->model().context_length);
    }
    if (!setup_.max_tokens_given) request.sampling.max_tokens = kChatAnswerTokens;
    request.sampling.max_tokens = std::min(request.sampling.max_tokens, room);
    TokenStream stream = TRY(setup_.engine->submit(std::move(request)));
    Interrupts::StreamGuard guard(*setup_.interrupts, stream);
    return drain(stream, [](std::string_view piece) { return write_out(piece); });
  }

  ChatSetup setup_;
  LineReader lines_;
  Usage total_;
  std::optional<Answer> last_;
};

}  // namespace

Result<int> chat(ChatSetup setup) {
  return Chat(std::move(setup)).run();
}

}  // namespace quire
