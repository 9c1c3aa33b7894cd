// quire bench throughput: a trace of requests, replayed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/bench_commands.h"
#include "cli/command_options.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/samples.h"
#include "cli/trace_client.h"
#include "cli/trace_file.h"
#include "core/kv_geometry.h"
#include "engine/machine.h"
#include "engine/model_package.h"
#include "engine/trace_replay.h"

namespace quire {
namespace {

namespace json = boost::json;

struct ThroughputArguments {
  ModelArguments model;
  std::string trace;
  float scale = 1;
  int requests_max = 0;
  TraceClientOptions::Arrivals arrivals = TraceClientOptions::Arrivals::kAtOnce;
  std::optional<float> speed_up;
  std::optional<float> rate;
  uint64_t kv_bytes = uint64_t{1} << 30;
  enum class Run : uint8_t { kModel, kDry } run = Run::kModel;
  float step_ms = 50;
  std::string kv_policy = "radix";
  int itl_target_ms = EngineOptions{}.itl_target_ms;
  AskedTokens asked = AskedTokens::kRecorded;
  OutputFormat format = OutputFormat::kText;

  [[nodiscard]] bool timed() const { return arrivals == TraceClientOptions::Arrivals::kTimed; }
};

// Use of KV memory, averaged over steps.
struct KvReport {
  double running_mean = 0;
  int running_max = 0;
  double internal_waste = 0;                // share of the slots held that hold no token
  double external_waste = 0;                // share of the pools that is free and too short for who waits
  double duplicate_bytes_avoided_mean = 0;  // that copies instead of shared blocks would have taken more
};

// What both kinds of run tell.
struct ThroughputReport {
  int64_t requests_done = 0, requests_refused = 0;
  std::optional<Error> first_refusal{};
  int64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0, ideal_cached_tokens = 0;
  int64_t steps = 0;
  double seconds = 0;
  Samples ttft{}, gap{};          // in ms, or in steps of a dry run
  std::optional<int64_t> rows{};  // of a dry run
  int64_t preemptions = 0;
  KvReport kv{};
};

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double per_second(const ThroughputReport& report, int64_t count) {
  return report.seconds > 0 ? static_cast<double>(count) / report.seconds : 0;
}

// How much faster than recorded the requests come.
Result<double> speed_up_of(const ThroughputArguments& arguments, const RequestTrace& trace) {
  if (!arguments.timed() && (arguments.speed_up || arguments.rate)) {
    return fail(ErrorCode::kInvalidArgument, arguments.rate ? "--rate" : "--speed-up",
                "{}: it has a meaning only with --arrivals", arguments.rate ? "--rate" : "--speed-up");
  }
  if (!arguments.rate) return arguments.speed_up.value_or(1);
  const double seconds = trace.requests.back().arrival_ms * 1e-3;
  if (seconds <= 0) {
    return fail(ErrorCode::kInvalidArgument, "--rate", "--rate: the {} requests of {} all come at one time",
                trace.requests.size(), arguments.trace);
  }
  return *arguments.rate * seconds / static_cast<double>(trace.requests.size() - 1);
}

// Options of the engine that plays a trace: room for its longest request, as far as the model goes.
Result<EngineOptions> planned_options(const ThroughputArguments& arguments, int64_t longest) {
  EngineOptions options = TRY(engine_options(arguments.model));
  options.kv_bytes = arguments.kv_bytes;
  options.kv_policy = arguments.kv_policy;
  options.itl_target_ms = arguments.itl_target_ms;
  if (options.context_length > 0) return options;
  const PackageInfo info = TRY(describe_package(options.model_path, options.kv_type));
  const bool dry = arguments.run == ThroughputArguments::Run::kDry;
  options.context_length = static_cast<int>(dry ? longest : std::min<int64_t>(longest, info.context_length));
  return options;
}

Samples samples_of(const std::vector<int>& values) {
  return {.values = std::vector<double>(values.begin(), values.end())};
}

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

KvReport kv_report(const EngineStats& stats, int running_max) {
  double held = 0, unwritten = 0, unusable = 0, pool_bytes = 0, avoided = 0;
  for (const PoolStats& pool : stats.pools) {
    const PoolUse& sums = pool.step_sums;
    const auto block_bytes = static_cast<double>(pool.block_bytes);
    const double slot_bytes = block_bytes / kDefaultBlockTokens;
    held += static_cast<double>(sums.slots_held) * slot_bytes;
    unwritten += static_cast<double>(sums.slots_held - sums.slots_written) * slot_bytes;
    unusable += static_cast<double>(sums.slots_external_waste) * slot_bytes;
    pool_bytes += static_cast<double>(pool.total) * block_bytes;
    avoided += static_cast<double>(sums.blocks_as_copies - sums.blocks_held) * block_bytes;
  }
  const auto steps = static_cast<double>(stats.steps);
  return {.running_mean = ratio(static_cast<double>(stats.sequence_steps), steps),
          .running_max = running_max,
          .internal_waste = ratio(unwritten, held),
          .external_waste = ratio(unusable, pool_bytes * steps),
          .duplicate_bytes_avoided_mean = ratio(avoided, steps)};
}

// Bookkeeping alone.
Result<ThroughputReport> dry_run(const ThroughputArguments& arguments, const EngineOptions& options,
                                 const RequestTrace& trace, double speed_up) {
  ReplayOptions replay_options = TRY(plan_replay(options));
  replay_options.asked = arguments.asked;
  if (arguments.timed()) replay_options.step_ms = arguments.step_ms * speed_up;
  const MonotonicClock clock;
  const int64_t begin_ns = clock.now_ns();
  TraceReplay replay(trace, replay_options);
  Progress progress("requests", std::ssize(trace.requests), progress_style(), clock);
  while (replay.step()) progress.update(replay.requests_ended(), "");
  progress.finish();
  ReplayFigures figures = replay.figures();
  return ThroughputReport{.requests_done = figures.requests_done,
                          .requests_refused = figures.requests_refused,
                          .first_refusal = std::move(figures.first_refusal),
                          .prompt_tokens = figures.prompt_tokens,
                          .output_tokens = figures.output_tokens,
                          .cached_tokens = static_cast<int64_t>(figures.stats.cached_tokens),
                          .ideal_cached_tokens = figures.ideal_cached_tokens,
                          .steps = static_cast<int64_t>(figures.stats.steps),
                          .seconds = static_cast<double>(clock.now_ns() - begin_ns) * 1e-9,
                          .ttft = samples_of(figures.ttft_steps),
                          .gap = samples_of(figures.gap_steps),
                          .rows = static_cast<int64_t>(figures.stats.rows),
                          .preemptions = static_cast<int64_t>(figures.stats.preemptions),
                          .kv = kv_report(figures.stats, figures.running_max)};
}

Result<ThroughputReport> model_run(const ThroughputArguments& arguments, Engine& engine,
                                   const RequestTrace& trace, double speed_up) {
  const MonotonicClock clock;
  Progress progress("requests", std::ssize(trace.requests), progress_style(), clock);
  const auto on_done = [&progress](int64_t done) { progress.update(done, ""); };
  TraceAnswers answers = TRY(
      send_trace(engine, trace,
                 {.arrivals = arguments.arrivals, .speed_up = speed_up, .asked = arguments.asked}, on_done));
  progress.finish();
  const EngineStats stats = engine.stats();
  return ThroughputReport{.requests_done = answers.requests_done,
                          .requests_refused = answers.requests_refused,
                          .first_refusal = std::move(answers.first_refusal),
                          .prompt_tokens = answers.prompt_tokens,
                          .output_tokens = answers.output_tokens,
                          .cached_tokens = answers.cached_tokens,
                          .ideal_cached_tokens = answers.ideal_cached_tokens,
                          .steps = static_cast<int64_t>(stats.steps),
                          .seconds = answers.seconds,
                          .ttft = std::move(answers.ttft_ms),
                          .gap = std::move(answers.gap_ms),
                          .preemptions = static_cast<int64_t>(stats.preemptions),
                          .kv = kv_report(stats, answers.running_max)};
}

json::object report_json(const ThroughputArguments& arguments, const ThroughputReport& report,
                         const EngineOptions& options) {
  json::object result;
  result["trace"] = arguments.trace;
  result["scale"] = json_float(arguments.scale);
  result["dry_run"] = report.rows.has_value();
  result["arrivals"] = arguments.timed() ? "timed" : "at once";
  result["kv_type"] = options.kv_type;
  result["kv_policy"] = arguments.kv_policy;
  result["itl_target_ms"] = options.itl_target_ms;
  result["kv_bytes"] = options.kv_bytes;
  result["context_length"] = options.context_length;
  result["requests"] = report.requests_done;
  result["requests_refused"] = report.requests_refused;
  if (report.first_refusal) result["first_refusal"] = report.first_refusal->message;
  result["prompt_tokens"] = report.prompt_tokens;
  result["output_tokens"] = report.output_tokens;
  result["cached_tokens"] = report.cached_tokens;
  result["hit_rate"] = share(report.cached_tokens, report.prompt_tokens);
  result["infinite_cache_hit_rate"] = share(report.ideal_cached_tokens, report.prompt_tokens);
  result["preemptions"] = report.preemptions;
  result["running_mean"] = report.kv.running_mean;
  result["running_max"] = report.kv.running_max;
  result["kv_internal_waste"] = report.kv.internal_waste;
  result["kv_external_waste"] = report.kv.external_waste;
  result["kv_duplicate_bytes_avoided_mean"] = report.kv.duplicate_bytes_avoided_mean;
  result["steps"] = report.steps;
  result["seconds"] = report.seconds;
  if (report.rows) {
    result["rows"] = *report.rows;
    result["ttft_steps"] = percentiles_json(report.ttft);
    result["inter_token_steps"] = percentiles_json(report.gap);
  } else {
    result["requests_per_s"] = per_second(report, report.requests_done);
    result["output_tokens_per_s"] = per_second(report, report.output_tokens);
    result["tokens_per_s"] = per_second(report, report.prompt_tokens + report.output_tokens);
    result["ttft_ms"] = percentiles_json(report.ttft);
    result["inter_token_ms"] = percentiles_json(report.gap);
  }
  return result;
}

// The lines that depend on time.
std::string speed_lines(const ThroughputReport& report) {
  if (report.rows) {
    return fmt::format(
        "dry run: {} steps of {:.1f} rows, bookkept in {:.1f} s\n", report.steps,
        static_cast<double>(*report.rows) / static_cast<double>(std::max<int64_t>(report.steps, 1)),
        report.seconds);
  }
  return fmt::format(
      "{:.1f} s, {} steps: {:.2f} requests/s, {:.1f} output tokens/s, {:.1f} tokens/s with prompts\n",
      report.seconds, report.steps, per_second(report, report.requests_done),
      per_second(report, report.output_tokens),
      per_second(report, report.prompt_tokens + report.output_tokens));
}

std::string percentile_row(const std::string& name, const Samples& samples) {
  if (samples.empty()) return "";
  return fmt::format("{:<22} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f}\n", name, samples.mean(),
                     samples.percentile(50), samples.percentile(90), samples.percentile(99), samples.max());
}

std::string report_table(const ThroughputArguments& arguments, const ThroughputReport& report,
                         const EngineOptions& options) {
  std::string text =
      fmt::format("{} · scale {} · {} · KV {} in {} · context {}\n", arguments.trace, arguments.scale,
                  arguments.timed() ? "by arrival time" : "at once", options.kv_type,
                  human_bytes(static_cast<double>(options.kv_bytes)), options.context_length);
  text += fmt::format("{} requests, {} prompt tokens, {} output tokens\n", report.requests_done,
                      report.prompt_tokens, report.output_tokens);
  if (report.first_refusal) {
    text += fmt::format("{} requests refused, the first because {}\n", report.requests_refused,
                        report.first_refusal->message);
  }
  text += speed_lines(report);
  text += fmt::format("{:<22} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "", "mean", "p50", "p90", "p99", "max");
  const char* unit = report.rows ? "steps" : "ms";
  text += percentile_row(fmt::format("TTFT, {}", unit), report.ttft);
  text += percentile_row(fmt::format("inter-token, {}", unit), report.gap);
  text += fmt::format("hit rate {:.2f} % of prompt tokens (an infinite cache: {:.2f} %)\n",
                      100 * share(report.cached_tokens, report.prompt_tokens),
                      100 * share(report.ideal_cached_tokens, report.prompt_tokens));
  text += fmt::format("{:.1f} sequences at once on the mean, {} at most; {} preemptions\n",
                      report.kv.running_mean, report.kv.running_max, report.preemptions);
  text += fmt::format(
      "KV waste: internal {:.2f} % of what is held, external {:.2f} % of the pools; {} of duplicates "
      "avoided\n",
      100 * report.kv.internal_waste, 100 * report.kv.external_waste,
      human_bytes(report.kv.duplicate_bytes_avoided_mean));
  return text;
}

Result<int> throughput(const ThroughputArguments& arguments) {
  constexpr std::array kPolicies{"contiguous", "paged", "radix"};
  if (std::ranges::find(kPolicies, arguments.kv_policy) == kPolicies.end()) {
    return fail(ErrorCode::kInvalidArgument, "--kv-policy", "--kv-policy: '{}' is not known; known are {}",
                arguments.kv_policy, fmt::join(kPolicies, ", "));
  }
  RequestTrace trace = cut_trace(TRY(read_trace_file(arguments.trace)), {.scale = arguments.scale});
  const int64_t longest = longest_request(trace);
  trace = cut_trace(std::move(trace), {.requests_max = arguments.requests_max});
  const double speed_up = TRY(speed_up_of(arguments, trace));
  const EngineOptions options = TRY(planned_options(arguments, longest));
  ThroughputReport report;
  if (arguments.run == ThroughputArguments::Run::kDry) {
    report = TRY(dry_run(arguments, options, trace, speed_up));
  } else {
    std::unique_ptr<Engine> engine = TRY(open_engine(options));
    report = TRY(model_run(arguments, *engine, trace, speed_up));
  }
  if (arguments.format == OutputFormat::kJson) {
    TRY(write_json(report_json(arguments, report, options)));
  } else {
    TRY(write_out(report_table(arguments, report, options)));
  }
  return kExitOk;
}

constexpr NumberRange<float> kPositive{.min = 0, .max = 1e6f, .lower = Bound::kExcluded};

// Which requests come, and when.
void add_trace_options(CLI::App& command, ThroughputArguments& arguments) {
  add_required_text(command, {"--trace", "The trace", "FILE"}, arguments.trace);
  add_number<float>(command, {"--scale", "Multiplies all lengths, shared ones too", "X"},
                    {.min = 0.01f, .max = 1}, arguments.scale);
  add_number<int>(command, {"--requests", "Only the first N; 0 = all", "N"}, {.min = 0},
                  arguments.requests_max);
  add_flag(command, {"--arrivals", "Send requests at their times, not as soon as the engine takes them"},
           [&arguments] { arguments.arrivals = TraceClientOptions::Arrivals::kTimed; });
  auto* speed_up =
      add_number<float>(command, {"--speed-up", "With --arrivals: time passes X times faster", "X"},
                        kPositive, arguments.speed_up);
  auto* rate = add_number<float>(
      command, {"--rate", "With --arrivals: so fast that R requests come a second, on the mean", "R"},
      kPositive, arguments.rate);
  exclude(speed_up, rate);
}

}  // namespace

CommandBody declare_bench_throughput(CLI::App& command) {
  auto arguments = std::make_shared<ThroughputArguments>();
  set_footer(
      command,
      "Traces: Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) and Mooncake's JSON lines with\n"
      "hash_ids. Prompts are random tokens that requests have in common as the trace says; answers have the\n"
      "recorded length. TTFT counts from the arrival; percentiles are nearest ranks.");
  add_model_options(command, arguments->model);
  add_trace_options(command, *arguments);
  add_number<uint64_t>(command, {"--kv-bytes", "Size of the block pools", "BYTES"}, {.min = 1},
                       arguments->kv_bytes);
  add_text(command, {"--kv-policy", "How requests get KV memory: contiguous, paged or radix", "NAME"},
           arguments->kv_policy);
  add_number<int>(
      command,
      {"--itl-target-ms",
       "Gap between the tokens of a running stream that prefills beside it keep to; 0 = none", "MS"},
      {.min = 0, .max = 60'000}, arguments->itl_target_ms);
  add_flag(command,
           {"--ask-context",
            "Requests ask for all tokens that the context allows, not only for the recorded ones"},
           [arguments] { arguments->asked = AskedTokens::kContext; });
  add_flag(command,
           {"--dry-run", "Only the bookkeeping: the real scheduler and tree, no weights, no K and V"},
           [arguments] { arguments->run = ThroughputArguments::Run::kDry; });
  add_number<float>(command, {"--step-ms", "With --dry-run --arrivals: how long a step lasts", "MS"},
                    kPositive, arguments->step_ms);
  add_json(command, arguments->format);
  return [arguments] { return throughput(*arguments); };
}

}  // namespace quire
