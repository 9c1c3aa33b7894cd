// quire run: one answer, or a chat.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/answer.h"
#include "cli/chat.h"
#include "cli/choice_options.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/interrupts.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "cli/text_input.h"

namespace quire {
namespace {

namespace json = boost::json;

enum class PromptForm { kTemplate, kRaw };

struct RunArguments {
  ModelArguments model;
  std::string mode;  // "chat" or ""
  std::optional<std::string> prompt, file, system;
  PromptForm form = PromptForm::kTemplate;
  SamplingParams sampling;
  ChoiceArguments choices;
  CLI::Option* max_tokens = nullptr;
  OutputFormat format = OutputFormat::kText;

  [[nodiscard]] bool has_prompt() const { return prompt || file; }
  [[nodiscard]] bool wants_chat() const {
    return !mode.empty() || (!has_prompt() && stdin_is_terminal() && stdout_is_terminal() && !is_json());
  }
  [[nodiscard]] bool is_json() const { return format == OutputFormat::kJson; }
};

Result<void> check_arguments(const RunArguments& arguments) {
  if (!arguments.mode.empty() && arguments.mode != "chat") {
    return fail(ErrorCode::kInvalidArgument, "mode",
                "unexpected argument '{}': give the prompt by --prompt, or 'chat'", arguments.mode);
  }
  if (arguments.mode == "chat" && (arguments.has_prompt() || arguments.is_json())) {
    return fail(ErrorCode::kInvalidArgument, "chat", "chat takes neither --prompt nor --file nor --json");
  }
  if (!arguments.has_prompt() && arguments.is_json() && stdin_is_terminal()) {
    return fail(ErrorCode::kInvalidArgument, "--prompt",
                "--json needs --prompt, --file or a prompt on stdin");
  }
  if (arguments.sampling.logprobs && !arguments.is_json()) {
    return fail(ErrorCode::kInvalidArgument, "--logprobs", "--logprobs needs --json");
  }
  if (arguments.wants_chat() && arguments.choices.has_several()) {
    return fail(ErrorCode::kInvalidArgument, "--n",
                "--n, --best-of and --beam-width need a prompt: a chat takes one answer");
  }
  Request unused;
  TRY(apply_choices(arguments.choices, unused));
  return {};
}

Result<std::string> read_prompt(const RunArguments& arguments) {
  if (arguments.has_prompt()) return read_text({arguments.prompt, arguments.file});
  if (stdin_is_terminal()) fmt::print(stderr, "type the prompt; Ctrl-D ends it\n");
  std::string text = TRY(read_stdin());
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--prompt",
                "a prompt is needed: --prompt, --file, or text on stdin");
  }
  return text;
}

json::array logprobs_json(const Answer& answer) {
  json::array logprobs;
  for (const ChosenLogprob& entry : answer.logprobs) {
    json::object row;
    row["token_id"] = entry.chosen.token_id;
    row["logprob"] = json_float(entry.chosen.logprob);
    row["top"] = top_json(entry.top);
    logprobs.emplace_back(std::move(row));
  }
  return logprobs;
}

json::object choice_json(const std::vector<Answer>& answers, size_t index, const Request& request) {
  const Answer& answer = answers[index];
  const ChoiceSummary& summary = answer.summary.choices[index];
  json::object choice;
  choice["index"] = index;
  choice["text"] = answer.text;
  choice["token_ids"] = json::array(answer.token_ids.begin(), answer.token_ids.end());
  choice["finish_reason"] = finish_reason_name(answer.finish);
  if (summary.score) choice["score"] = *summary.score;
  if (summary.logprob_sum) choice["logprob_sum"] = *summary.logprob_sum;
  if (request.sampling.logprobs) choice["logprobs"] = logprobs_json(answer);
  return choice;
}

// The first answer as if it were the only one; of several, also `choices`.
json::object answers_json(const std::vector<Answer>& answers, const Request& request,
                          const ModelInfo& model) {
  const Answer& answer = answers.front();
  const auto& [usage, timings, kv, summaries] = answer.summary;
  json::object result;
  result["text"] = answer.text;
  result["token_ids"] = json::array(answer.token_ids.begin(), answer.token_ids.end());
  result["prompt_token_ids"] = json::array(request.prompt_token_ids.begin(), request.prompt_token_ids.end());
  result["finish_reason"] = finish_reason_name(answer.finish);
  result["usage"] = json::object{{"prompt_tokens", usage.prompt_tokens},
                                 {"cached_tokens", usage.cached_tokens},
                                 {"completion_tokens", usage.completion_tokens}};
  result["timings"] = json::object{{"load_ms", model.load_ms},
                                   {"ttft_ms", timings.ttft_ms},
                                   {"prefill_tokens_per_s", timings.prefill_tokens_per_s},
                                   {"decode_tokens_per_s", timings.decode_tokens_per_s}};
  result["kv"] = json::object{{"type", model.kv_type},
                              {"block_tokens", kv.block_tokens},
                              {"blocks_used", kv.blocks_used},
                              {"tokens_used", kv.tokens_used},
                              {"blocks_used_max", kv.blocks_used_max},
                              {"blocks_as_copies_max", kv.blocks_as_copies_max},
                              {"preemptions", kv.preemptions}};
  if (request.sampling.logprobs) result["logprobs"] = logprobs_json(answer);
  if (request.n > 1 || summaries.front().score) {
    json::array choices;
    for (size_t i = 0; i < answers.size(); ++i) choices.emplace_back(choice_json(answers, i, request));
    result["choices"] = std::move(choices);
  }
  return result;
}

// Each answer under a line that names it.
Result<void> write_choices(const std::vector<Answer>& answers) {
  for (size_t i = 0; i < answers.size(); ++i) {
    const ChoiceSummary& choice = answers[i].summary.choices[i];
    std::string score;
    if (choice.score) score = fmt::format(", score {:.4f}", *choice.score);
    TRY(write_out(fmt::format("{}[{}] {} tokens, {}{}\n{}\n", i == 0 ? "" : "\n", i, choice.completion_tokens,
                              finish_reason_name(choice.finish), score, answers[i].text)));
  }
  return {};
}

int exit_status(const Answer& answer) {
  return answer.finish == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
}

Result<int> answer_once(const RunArguments& arguments, Engine& engine, const Conversation& conversation,
                        Interrupts& interrupts) {
  Request request;
  request.prompt_token_ids = TRY(conversation.prompt());
  request.sampling = arguments.sampling;
  // The default yields to a small context; a number that was given does not.
  if (!was_given(arguments.max_tokens)) {
    int room = engine.model().context_length - static_cast<int>(request.prompt_token_ids.size());
    request.sampling.max_tokens = std::clamp(room, 1, request.sampling.max_tokens);
  }
  TRY(apply_choices(arguments.choices, request));
  TokenStream stream = TRY(engine.submit(request));
  Interrupts::StreamGuard guard(interrupts, stream);
  if (arguments.is_json()) {
    const std::vector<Answer> answers = TRY(drain_choices(stream));
    TRY(write_json(answers_json(answers, request, engine.model())));
    return exit_status(answers.front());
  }
  Answer answer;
  if (arguments.choices.has_several()) {
    const std::vector<Answer> answers = TRY(drain_choices(stream));
    TRY(write_choices(answers));
    answer = answers.front();
  } else {
    answer = TRY(drain(stream, [](std::string_view piece) { return write_out(piece); }));
    TRY(write_out("\n"));
  }
  fmt::print(stderr, "{} · load {:.0f} ms\n", figures_line(answer, engine.model()), engine.model().load_ms);
  return exit_status(answer);
}

Result<int> run(const RunArguments& arguments) {
  TRY(check_arguments(arguments));
  Interrupts interrupts;
  std::string prompt;
  if (!arguments.wants_chat()) prompt = TRY(read_prompt(arguments));
  std::unique_ptr<Engine> engine = TRY(open_engine(arguments.model));
  const ChatTemplate* chat_template = engine->chat_template();
  if (arguments.form == PromptForm::kRaw) {
    chat_template = nullptr;
  } else if (chat_template == nullptr) {
    fmt::print(stderr, "quire: this model has no chat template: the prompt is raw text\n");
  }
  Conversation conversation(engine->tokenizer(), chat_template);
  conversation.set_system(arguments.system.value_or(""));
  if (!arguments.wants_chat()) {
    conversation.add({"user", std::move(prompt)});
    return answer_once(arguments, *engine, conversation, interrupts);
  }
  return chat({.engine = engine.get(),
               .interrupts = &interrupts,
               .sampling = arguments.sampling,
               .max_tokens_given = was_given(arguments.max_tokens),
               .conversation = std::move(conversation)});
}

}  // namespace

CommandBody declare_run(CLI::App& app) {
  auto arguments = std::make_shared<RunArguments>();
  set_footer(app,
             "Without a prompt: a chat on a terminal, else the prompt is read from stdin.\n"
             "JSON: text, token_ids, prompt_token_ids, finish_reason, usage, timings, kv (and logprobs,\n"
             "choices).\n"
             "  quire run smollm2.gguf -p 'Why is the sky blue?' --max-tokens 64\n"
             "  quire run smollm2.gguf chat --system 'Answer briefly.' --temperature 0.7 --top-p 0.9");
  add_model_options(app, arguments->model);
  add_text(app, {"mode", "'chat': converse, also without a terminal (a message a line)", "[chat]"},
           arguments->mode);
  CLI::Option* prompt = add_text(app, {"-p,--prompt", "The prompt"}, arguments->prompt);
  exclude(
      add_text(app, {"--file", "The prompt is this file, as it is; '-' is stdin", "FILE"}, arguments->file),
      prompt);
  add_flag(app, {"--raw", "Do not apply the chat template"},
           [arguments] { arguments->form = PromptForm::kRaw; });
  add_text(app, {"--system", "The system message"}, arguments->system);
  arguments->max_tokens = add_sampling_options(app, arguments->sampling);
  add_choice_options(app, arguments->choices);
  add_json(app, arguments->format);
  return [arguments] { return run(*arguments); };
}

}  // namespace quire
