// quire bench batch: prefill and decode of many sequences at once.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "cli/answer.h"
#include "cli/bench_commands.h"
#include "cli/command_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/random_tokens.h"
#include "cli/samples.h"
#include "core/kv_geometry.h"
#include "engine/machine.h"
#include "engine/model_package.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr int kBatchMax = 256;

struct BatchArguments {
  ModelArguments model;
  int prompt_tokens = 128;
  int gen_tokens = 64;
  std::vector<int> batches{1, 2, 4, 8, 16, 32};
  enum class Prompts : uint8_t { kDistinct, kShared } prompts = Prompts::kDistinct;
  int rounds = 1;
  uint64_t seed = 1;
  OutputFormat format = OutputFormat::kText;

  [[nodiscard]] bool shares_prompt() const { return prompts == Prompts::kShared; }
};

// The rounds of one batch size, in seconds.
struct BatchRow {
  int batch = 0;
  int64_t prefill_tokens = 0;  // that are computed
  int64_t decode_tokens = 0;
  Samples prefill_s{};
  Samples decode_s{};
  int cached_tokens = 0;  // fewest prompt tokens that a decoding sequence found in the cache
};

// The two phases are separate requests: first every prompt is computed, with no token asked for; when all
// have ended, the same prompts come again with all their tokens asked for. What they find in the cache spares
// them everything but the last prompt token, so that each token costs one row in one step.
class BatchBench {
 public:
  BatchBench(const BatchArguments& arguments, Engine& engine)
      : arguments_(arguments), engine_(engine), tokens_(arguments.seed, engine.model().vocab_size) {}

  Result<std::vector<BatchRow>> run() {
    std::vector<BatchRow> rows;
    for (int batch : arguments_.batches) {
      const int64_t prompts = arguments_.shares_prompt() ? 1 : batch;
      rows.push_back({.batch = batch,
                      .prefill_tokens = prompts * arguments_.prompt_tokens,
                      .decode_tokens = int64_t{batch} * arguments_.gen_tokens,
                      .cached_tokens = arguments_.prompt_tokens});
    }
    BatchRow warm_up = rows.front();
    TRY(measure(warm_up));
    Progress progress("batches", std::ssize(rows) * arguments_.rounds, progress_style(), clock_);
    int64_t done = 0;
    for (int round = 0; round < arguments_.rounds; ++round) {
      for (BatchRow& row : rows) {
        TRY(measure(row));
        progress.update(++done, fmt::format("B {}", row.batch));
      }
    }
    return rows;
  }

 private:
  using Prompt = std::vector<int32_t>;
  struct Phase {
    double seconds = 0;
    int cached_tokens = 0;  // fewest of a request
  };

  Result<void> measure(BatchRow& row) {
    std::vector<Prompt> prompts;
    for (int64_t fresh = row.prefill_tokens / arguments_.prompt_tokens; fresh > 0; --fresh)
      prompts.push_back(tokens_.next(arguments_.prompt_tokens));
    row.prefill_s.add(TRY(run_phase(prompts, 0)).seconds);
    prompts.resize(static_cast<size_t>(row.batch), prompts.front());
    const Phase decode = TRY(run_phase(prompts, arguments_.gen_tokens));
    row.decode_s.add(decode.seconds);
    row.cached_tokens = std::min(row.cached_tokens, decode.cached_tokens);
    return {};
  }

  // From the first submission to the last event, by the engine's own stamps.
  Result<Phase> run_phase(const std::vector<Prompt>& prompts, int max_tokens) {
    const int64_t begin_ns = clock_.now_ns();
    std::vector<int64_t> submitted_ns;
    std::vector<TokenStream> streams;
    for (const Prompt& prompt : prompts) {
      submitted_ns.push_back(clock_.now_ns());
      streams.push_back(TRY(engine_.submit(
          {.prompt_token_ids = prompt, .sampling = {.max_tokens = max_tokens, .ignore_eos = true}})));
    }
    Phase phase{.cached_tokens = arguments_.prompt_tokens};
    for (size_t i = 0; i < streams.size(); ++i) {
      const Answer answer = TRY(drain(streams[i]));
      CHECK(std::ssize(answer.token_ids) == max_tokens);
      const double offset_s = static_cast<double>(submitted_ns[i] - begin_ns) * 1e-9;
      phase.seconds = std::max(phase.seconds, offset_s + answer.summary.timings.total_ms * 1e-3);
      phase.cached_tokens = std::min(phase.cached_tokens, answer.summary.usage.cached_tokens);
    }
    return phase;
  }

  const BatchArguments& arguments_;
  Engine& engine_;
  RandomTokens tokens_;
  const MonotonicClock clock_;
};

// What llama-batched-bench derives from the two times.
struct Rates {
  Samples prefill, decode, total_s, total;  // tokens/s, seconds, tokens/s
};

Rates rates_of(const BatchRow& row) {
  Rates rates;
  for (size_t i = 0; i < row.prefill_s.values.size(); ++i) {
    const double prefill_s = row.prefill_s.values[i], decode_s = row.decode_s.values[i];
    rates.prefill.add(static_cast<double>(row.prefill_tokens) / prefill_s);
    rates.decode.add(static_cast<double>(row.decode_tokens) / decode_s);
    rates.total_s.add(prefill_s + decode_s);
    rates.total.add(static_cast<double>(row.prefill_tokens + row.decode_tokens) / (prefill_s + decode_s));
  }
  return rates;
}

json::object row_json(const BatchArguments& arguments, const BatchRow& row) {
  const Rates rates = rates_of(row);
  json::object result;
  result["pp"] = arguments.prompt_tokens;
  result["tg"] = arguments.gen_tokens;
  result["b"] = row.batch;
  result["n_kv"] = row.prefill_tokens + row.decode_tokens;
  result["t_pp_s"] = spread_json(row.prefill_s, 1);
  result["s_pp_tokens_per_s"] = spread_json(rates.prefill, 1);
  result["t_tg_s"] = spread_json(row.decode_s, 1);
  result["s_tg_tokens_per_s"] = spread_json(rates.decode, 1);
  result["t_s"] = spread_json(rates.total_s, 1);
  result["s_tokens_per_s"] = spread_json(rates.total, 1);
  result["decode_cached_tokens"] = row.cached_tokens;
  return result;
}

json::object report_json(const BatchArguments& arguments, const std::vector<BatchRow>& rows,
                         const ModelInfo& model) {
  json::object result;
  result["cpu"] = describe_machine().cpu;
  result["isa"] = model.isa;
  result["threads"] = model.threads;
  result["kv_type"] = model.kv_type;
  result["exact"] = arguments.model.engine.exact;
  result["shared_prompt"] = arguments.shares_prompt();
  result["rounds"] = arguments.rounds;
  result["seed"] = arguments.seed;
  json::array list;
  for (const BatchRow& row : rows) list.emplace_back(row_json(arguments, row));
  result["rows"] = std::move(list);
  return result;
}

std::string report_table(const BatchArguments& arguments, const std::vector<BatchRow>& rows,
                         const ModelInfo& model) {
  std::string text =
      fmt::format("{} · {} · {} threads · KV {}{}{} · {} round{}\n", describe_machine().cpu, model.isa,
                  model.threads, model.kv_type, arguments.model.engine.exact ? " · exact" : "",
                  arguments.shares_prompt() ? " · shared prompt" : "", arguments.rounds,
                  arguments.rounds == 1 ? "" : "s, median");
  text +=
      "|     PP |     TG |    B |    N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s "
      "|\n";
  text +=
      "|-------:|-------:|-----:|--------:|---------:|---------:|---------:|---------:|---------:|---------:|"
      "\n";
  for (const BatchRow& row : rows) {
    const Rates rates = rates_of(row);
    text += fmt::format(
        "| {:6} | {:6} | {:4} | {:7} | {:8.3f} | {:8.2f} | {:8.3f} | {:8.2f} | {:8.3f} | {:8.2f} |\n",
        arguments.prompt_tokens, arguments.gen_tokens, row.batch, row.prefill_tokens + row.decode_tokens,
        row.prefill_s.median(), rates.prefill.median(), row.decode_s.median(), rates.decode.median(),
        rates.total_s.median(), rates.total.median());
  }
  return text;
}

// Room for the largest batch, and for what the cache keeps of the prompts beside it.
Result<uint64_t> pool_bytes(const BatchArguments& arguments, int batch_max) {
  const EngineOptions options = TRY(engine_options(arguments.model));
  const PackageInfo info = TRY(describe_package(options.model_path, options.kv_type));
  const auto tokens = static_cast<uint64_t>(arguments.model.engine.context_length + 3 * kDefaultBlockTokens);
  return info.kv_bytes_per_token * tokens * static_cast<uint64_t>(batch_max + 1);
}

Result<int> batch(const BatchArguments& given) {
  BatchArguments arguments = given;
  EngineOptions& engine_options = arguments.model.engine;
  const int batch_max = *std::ranges::max_element(arguments.batches);
  const int tokens = arguments.prompt_tokens + arguments.gen_tokens;
  if (engine_options.context_length == 0) engine_options.context_length = tokens;
  if (engine_options.context_length < tokens) {
    return fail(ErrorCode::kInvalidArgument, "--context",
                "--context: {} is less than the {} tokens of --prompt-tokens and --gen-tokens",
                engine_options.context_length, tokens);
  }
  engine_options.kv_bytes = TRY(pool_bytes(arguments, batch_max));
  std::unique_ptr<Engine> engine = TRY(open_engine(arguments.model));
  const std::vector<BatchRow> rows = TRY(BatchBench(arguments, *engine).run());
  if (arguments.format == OutputFormat::kJson) {
    TRY(write_json(report_json(arguments, rows, engine->model())));
  } else {
    TRY(write_out(report_table(arguments, rows, engine->model())));
  }
  return kExitOk;
}

}  // namespace

CommandBody declare_bench_batch(CLI::App& command) {
  auto arguments = std::make_shared<BatchArguments>();
  set_footer(
      command,
      "The columns are those of llama-batched-bench: B sequences of PP random prompt tokens are prefilled, "
      "then\n"
      "all of them decode TG tokens. N_KV tokens are computed; T_… are seconds, S_… tokens per second; with\n"
      "--rounds the median of each, the batch sizes interleaved. --json has median, least and greatest.");
  add_model_options(command, arguments->model);
  constexpr NumberRange<int> kTokens{.min = 1, .max = 1 << 20};
  add_number<int>(command, {"-p,--prompt-tokens", "PP: prompt tokens of each sequence", "N"}, kTokens,
                  arguments->prompt_tokens);
  add_number<int>(command, {"-n,--gen-tokens", "TG: tokens that each sequence decodes", "N"}, kTokens,
                  arguments->gen_tokens);
  add_numbers(command, {"-b,--batch", "B: sequences at once, one or several numbers", "N,N,…"},
              {.min = 1, .max = kBatchMax}, arguments->batches);
  add_flag(command, {"--shared-prompt", "All sequences have the same prompt; it is computed once"},
           [arguments] { arguments->prompts = BatchArguments::Prompts::kShared; });
  add_number<int>(command, {"--rounds", "Rounds over all batch sizes", "N"}, {.min = 1, .max = 1000},
                  arguments->rounds);
  add_number<uint64_t>(command, {"--seed", "Of the random prompts", "N"}, {}, arguments->seed);
  add_json(command, arguments->format);
  return [arguments] { return batch(*arguments); };
}

}  // namespace quire
