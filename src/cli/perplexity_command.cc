// quire perplexity: how well a model predicts a text file.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/answer.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/perplexity.h"
#include "cli/progress.h"
#include "cli/text_input.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

namespace json = boost::json;

// Windows in the engine at the same time: the next one waits in its inbox while one is computed.
constexpr size_t kWindowsInFlight = 3;

struct PerplexityArguments {
  ModelArguments model;
  std::string file;
  int window = 512;
  int max_tokens = 0;
  OutputFormat format = OutputFormat::kText;
};

struct Report {
  int window = 0;
  size_t tokens = 0;  // of the text, before the cut
  bool bos = false;
  std::vector<WindowScore> windows;
  NllSum all, second_half;
  double seconds = 0;

  void add(const WindowScore& score) {
    windows.push_back(score);
    all.sum += score.all.sum;
    all.predictions += score.all.predictions;
    second_half.sum += score.second_half.sum;
    second_half.predictions += score.second_half.predictions;
  }
};

// BOS, when the model begins a prompt with it.
Result<std::optional<TokenId>> leading_bos(const Tokenizer& tokenizer) {
  std::vector<TokenId> ids = TRY(tokenizer.encode_prompt("a", SpecialTokens::kParse));
  if (!tokenizer.bos() || ids.empty() || ids.front() != *tokenizer.bos()) return std::optional<TokenId>();
  return tokenizer.bos();
}

Result<Report> evaluate(const PerplexityArguments& arguments, const std::string& contents, Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  std::vector<TokenId> text = TRY(tokenizer.encode_prompt(contents, SpecialTokens::kParse));
  WindowPlan plan {
    .window = arguments.window, .bos = TRY(leading_bos(tokenizer))
  };
  Report report;
  report.window = plan.window;
  report.tokens = text.size();
  report.bos = plan.bos.has_value();
  if (arguments.max_tokens > 0) text.resize(std::min(text.size(), static_cast<size_t>(arguments.max_tokens)));
  int count = plan.count(text.size());
  if (count == 0) {
    return fail(ErrorCode::kInvalidArgument, "--window",
                "--window: {} tokens to evaluate are fewer than one window of {}", text.size(), plan.window);
  }
  MonotonicClock clock;
  Progress progress("windows", count, progress_style(), clock);
  int64_t started = clock.now_ns();
  std::deque<TokenStream> running;
  for (int next = 0, done = 0; done < count; ++done) {
    for (; next < count && running.size() < kWindowsInFlight; ++next) {
      Request request{
          .prompt_token_ids = plan.tokens(text, next), .sampling = {.max_tokens = 0}, .prompt_logprobs = 0};
      running.push_back(TRY(engine.submit(std::move(request))));
    }
    Answer answer = TRY(drain(running.front()));
    running.pop_front();
    report.add(score_window(answer.prompt_positions));
    progress.update(done + 1, fmt::format("perplexity {:.4f}", report.all.perplexity()));
  }
  report.seconds = static_cast<double>(clock.now_ns() - started) * 1e-9;
  return report;
}

json::object sum_json(const NllSum& sum) {
  return {{"predictions", sum.predictions}, {"mean_nll", sum.mean()}, {"ppl", sum.perplexity()}};
}

json::object report_json(const Report& report, const ModelInfo& model) {
  json::object result;
  result["window"] = report.window;
  result["windows"] = report.windows.size();
  result["text_tokens"] = report.tokens;
  result["first_token_replaced_by_bos"] = report.bos;
  result["kv_type"] = model.kv_type;
  result["mean_nll"] = report.all.mean();
  result["ppl"] = report.all.perplexity();
  result["all"] = sum_json(report.all);
  result["second_half"] = sum_json(report.second_half);
  json::array all, second;
  for (const WindowScore& score : report.windows) {
    all.emplace_back(score.all.sum);
    second.emplace_back(score.second_half.sum);
  }
  result["window_nll_sum_all"] = std::move(all);
  result["window_nll_sum_second_half"] = std::move(second);
  result["seconds"] = report.seconds;
  result["tokens_per_s"] = static_cast<double>(report.windows.size()) * report.window / report.seconds;
  return result;
}

Result<int> perplexity(const PerplexityArguments& arguments) {
  ModelArguments model = arguments.model;
  if (model.engine.context_length == 0) model.engine.context_length = arguments.window;
  if (model.engine.context_length < arguments.window) {
    return fail(ErrorCode::kInvalidArgument, "--context", "--context: {} is less than --window {}",
                model.engine.context_length, arguments.window);
  }
  std::string contents = TRY(read_text_file(arguments.file));
  std::unique_ptr<Engine> engine = TRY(open_engine(model));
  Report report = TRY(evaluate(arguments, contents, *engine));
  if (arguments.format == OutputFormat::kJson) {
    TRY(write_json(report_json(report, engine->model())));
    return kExitOk;
  }
  auto row = [](const char* name, const NllSum& sum) {
    return fmt::format("{:<14} {:>12} {:>12.5f} {:>12.4f}\n", name, sum.predictions, sum.mean(),
                       sum.perplexity());
  };
  TRY(write_out(fmt::format("{:<14} {:>12} {:>12} {:>12}\n", "", "predictions", "mean NLL", "perplexity") +
                row("all", report.all) + row("second halves", report.second_half)));
  fmt::print(stderr, "{} windows of {} tokens in {:.1f} s\n", report.windows.size(), report.window,
             report.seconds);
  return kExitOk;
}

}  // namespace

CommandBody declare_perplexity(CLI::App& app) {
  auto arguments = std::make_shared<PerplexityArguments>();
  set_footer(
      app,
      "The file is tokenised in one piece and cut into windows without overlap, each evaluated alone; an\n"
      "incomplete last window is left out. For models that begin a text with BOS, it replaces the first "
      "token\n"
      "of every window. 'second halves' counts predictions with at least half a window of context.");
  add_model_options(app, arguments->model);
  add_required_text(app, {"file", "A text file, as it is; '-' is stdin", "FILE"}, arguments->file);
  add_number<int>(app, {"--window", "Tokens of a window", "N"}, {.min = 4}, arguments->window);
  add_number<int>(app, {"--max-tokens", "Only the first N tokens of the text; 0 = all", "N"}, {.min = 0},
                  arguments->max_tokens);
  add_json(app, arguments->format);
  return [arguments] { return perplexity(*arguments); };
}

}  // namespace quire
