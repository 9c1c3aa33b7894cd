// quire logits: what the model says at every position of a text.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/answer.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

namespace json = boost::json;

struct LogitsArguments {
  ModelArguments model;
  std::optional<std::string> ids, text, file;
  int top = 10;
  int chunk = 0;
  OutputFormat format = OutputFormat::kText;
};

Result<std::vector<int32_t>> parse_ids(const std::string& list) {
  std::vector<int32_t> ids;
  size_t begin = 0;
  while (begin <= list.size()) {
    size_t end = std::min(list.find(',', begin), list.size());
    std::string item = list.substr(begin, end - begin);
    while (item.starts_with(' ')) item.erase(0, 1);
    ids.push_back(TRY(parse_number<int32_t>(item, {.min = 0}, "--token-ids")));
    begin = end + 1;
  }
  return ids;
}

// What is asked about, read before the model is loaded.
struct LogitsInput {
  std::vector<int32_t> ids;
  std::optional<std::string> text;  // wins
};

Result<LogitsInput> read_input(const LogitsArguments& arguments) {
  if (arguments.ids) return LogitsInput {
      TRY(parse_ids(*arguments.ids))
      , std::nullopt
    };
  if (!arguments.text && !arguments.file) {
    return fail(ErrorCode::kInvalidArgument, "--token-ids",
                "tokens are needed: --token-ids, --text or --file");
  }
  return LogitsInput {
    {}, TRY(read_text({arguments.text, arguments.file}))
  };
}

json::object position_json(int position, int32_t id, const PromptPosition& told) {
  json::object row;
  row["position"] = position;
  row["token_id"] = id;
  row["logsumexp"] = told.logsumexp;
  row["next_logprob"] = told.next ? json::value(json_float(told.next->logprob)) : json::value(nullptr);
  row["top"] = top_json(told.top);
  return row;
}

std::string position_line(int position, int32_t id, const PromptPosition& told) {
  std::string next = told.next ? fmt::format("{:.4f}", told.next->logprob) : "-";
  std::string line = fmt::format("{:>8} {:>8} {:>12.4f} {:>10} ", position, id, told.logsumexp, next);
  for (const TokenLogprob& entry : told.top) line += fmt::format(" {}:{:.4f}", entry.token_id, entry.logprob);
  return line + "\n";
}

Result<int> logits(const LogitsArguments& arguments) {
  LogitsInput input = TRY(read_input(arguments));
  std::unique_ptr<Engine> engine = TRY(open_engine(arguments.model));
  if (input.text) input.ids = TRY(engine->tokenizer().encode_prompt(*input.text, SpecialTokens::kParse));
  Request request;
  request.prompt_token_ids = std::move(input.ids);
  request.sampling.max_tokens = 0;
  request.prompt_logprobs = arguments.top;
  request.prefill_chunk_tokens = arguments.chunk;
  TokenStream stream = TRY(engine->submit(request));
  Answer answer = TRY(drain(stream));
  bool as_json = arguments.format == OutputFormat::kJson;
  json::array rows;
  std::string table = fmt::format("{:>8} {:>8} {:>12} {:>10}  {}\n", "position", "token", "logsumexp", "next",
                                  "best next tokens id:logprob");
  for (size_t i = 0; i < answer.prompt_positions.size(); ++i) {
    int position = static_cast<int>(i);
    const PromptPosition& told = answer.prompt_positions[i];
    if (as_json) {
      rows.emplace_back(position_json(position, request.prompt_token_ids[i], told));
    } else {
      table += position_line(position, request.prompt_token_ids[i], told);
    }
  }
  if (as_json) {
    json::object result;
    result["positions"] = std::move(rows);
    TRY(write_json(result));
  } else {
    TRY(write_out(table));
  }
  return kExitOk;
}

}  // namespace

CommandBody declare_logits(CLI::App& app) {
  auto arguments = std::make_shared<LogitsArguments>();
  set_footer(
      app,
      "Log-probabilities are natural logarithms. JSON: {\"positions\": [{position, token_id, logsumexp,\n"
      "next_logprob, top: [[id, logprob], …]}, …]}; next_logprob is null at the last position.");
  add_model_options(app, arguments->model);
  CLI::Option* ids = add_text(app, {"--token-ids", "Token ids, with commas: 1,2,3", "IDS"}, arguments->ids);
  CLI::Option* text = add_text(app, {"--text", "A text, tokenised as a prompt"}, arguments->text);
  CLI::Option* file =
      add_text(app, {"--file", "A file, tokenised as a prompt; '-' is stdin", "FILE"}, arguments->file);
  exclude(text, ids);
  exclude(file, ids);
  exclude(file, text);
  add_number<int>(app, {"--top", "That many best tokens a position", "K"}, {.min = 0, .max = 100},
                  arguments->top);
  add_number<int>(
      app,
      {"--chunk", "Most prompt tokens in one step; 0 = the engine's choice. No result depends on it", "N"},
      {.min = 0}, arguments->chunk);
  add_json(app, arguments->format);
  return [arguments] { return logits(*arguments); };
}

}  // namespace quire
