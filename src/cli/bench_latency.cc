// quire bench latency: prefill and decode of one sequence.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/answer.h"
#include "cli/bench_commands.h"
#include "cli/command_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/random_tokens.h"
#include "cli/read_bandwidth.h"
#include "cli/samples.h"
#include "engine/machine.h"

namespace quire {
namespace {

namespace json = boost::json;

struct LatencyArguments {
  ModelArguments model;
  int prompt_tokens = 512;
  int decode_tokens = 128;
  int depth = 0;
  int repeat = 5;
  OutputFormat format = OutputFormat::kText;
};

struct LatencyReport {
  Samples prefill;            // tokens/s
  Samples decode;             // tokens/s
  Samples bandwidth;          // bytes/s
  uint64_t weight_bytes = 0;  // that one decoded token reads
  int cached_tokens = 0;      // fewest of the depth that a measured request found in the cache
};

// One sequence of random tokens after another; no two share a prefix beyond what they are told to.
class LatencyBench {
 public:
  LatencyBench(const LatencyArguments& arguments, Engine& engine)
      : arguments_(arguments), engine_(engine), tokens_(std::random_device{}(), engine.model().vocab_size) {}

  Result<LatencyReport> run() {
    MonotonicClock clock;
    std::unique_ptr<ReadBandwidth> bandwidth = TRY(ReadBandwidth::make(engine_.model().threads));
    LatencyReport report;
    report.weight_bytes = engine_.model().decode_weight_bytes;
    report.cached_tokens = arguments_.depth;
    depth_ids_ = tokens_.next(arguments_.depth);
    TRY(measure({.prompt_tokens = std::min(arguments_.prompt_tokens, 32), .answer_tokens = 4}));  // warms up
    Progress progress("rounds", arguments_.repeat, progress_style(), clock);
    for (int round = 0; round < arguments_.repeat; ++round) {
      report.bandwidth.values.push_back(bandwidth->measure());
      if (arguments_.prompt_tokens > 0) {
        Answer prefill = TRY(measure({.prompt_tokens = arguments_.prompt_tokens, .answer_tokens = 1}));
        report.prefill.values.push_back(prefill.summary.timings.prefill_tokens_per_s);
        report.cached_tokens = std::min(report.cached_tokens, prefill.summary.usage.cached_tokens);
      }
      if (arguments_.decode_tokens > 0) {
        Answer decode = TRY(measure({.prompt_tokens = 1, .answer_tokens = arguments_.decode_tokens + 1}));
        report.decode.values.push_back(decode.summary.timings.decode_tokens_per_s);
        report.cached_tokens = std::min(report.cached_tokens, decode.summary.usage.cached_tokens);
      }
      progress.update(round + 1, "");
    }
    return report;
  }

 private:
  struct Shape {
    int prompt_tokens = 0;  // after the depth
    int answer_tokens = 0;
  };

  Result<void> fill_depth() {
    if (depth_ids_.empty()) return {};
    Request request{.prompt_token_ids = depth_ids_, .sampling = {.max_tokens = 0}};
    TokenStream stream = TRY(engine_.submit(std::move(request)));
    TRY(drain(stream));
    return {};
  }

  Result<Answer> measure(const Shape& shape) {
    TRY(fill_depth());
    Request request{.prompt_token_ids = depth_ids_,
                    .sampling = {.max_tokens = shape.answer_tokens, .ignore_eos = true}};
    std::vector<int32_t> fresh = tokens_.next(shape.prompt_tokens);
    request.prompt_token_ids.insert(request.prompt_token_ids.end(), fresh.begin(), fresh.end());
    TokenStream stream = TRY(engine_.submit(std::move(request)));
    return drain(stream);
  }

  const LatencyArguments& arguments_;
  Engine& engine_;
  RandomTokens tokens_;
  std::vector<int32_t> depth_ids_;
};

// GB/s of weights that a decode rate means.
double weight_rate(const LatencyReport& report) {
  return report.decode.median() * static_cast<double>(report.weight_bytes);
}

json::object report_json(const LatencyArguments& arguments, const LatencyReport& report,
                         const ModelInfo& model) {
  json::object result;
  result["cpu"] = describe_machine().cpu;
  result["isa"] = model.isa;
  result["threads"] = model.threads;
  result["kv_type"] = model.kv_type;
  result["exact"] = arguments.model.engine.exact;
  result["prompt_tokens"] = arguments.prompt_tokens;
  result["decode_tokens"] = arguments.decode_tokens;
  result["depth"] = arguments.depth;
  result["depth_cached_tokens"] = report.cached_tokens;
  result["repeat"] = arguments.repeat;
  result["decode_weight_bytes"] = report.weight_bytes;
  result["prefill_tokens_per_s"] = spread_json(report.prefill, 1);
  result["decode_tokens_per_s"] = spread_json(report.decode, 1);
  result["read_bandwidth_gb_per_s"] = spread_json(report.bandwidth, 1e9);
  if (!report.decode.values.empty()) {
    result["decode_weights_gb_per_s"] = weight_rate(report) * 1e-9;
    result["decode_share_of_read_bandwidth"] = weight_rate(report) / report.bandwidth.median();
  }
  return result;
}

std::string report_table(const LatencyArguments& arguments, const LatencyReport& report,
                         const ModelInfo& model) {
  std::string text = fmt::format("{} · {} · {} threads · KV {}{} · depth {}\n", describe_machine().cpu,
                                 model.isa, model.threads, model.kv_type,
                                 arguments.model.engine.exact ? " · exact" : "", arguments.depth);
  text += fmt::format("{:<26} {:>10} {:>10} {:>10}\n", "", "median", "min", "max");
  auto row = [&text](const std::string& name, const Samples& samples, double unit) {
    if (samples.values.empty()) return;
    text += fmt::format("{:<26} {:>10.1f} {:>10.1f} {:>10.1f}\n", name, samples.median() / unit,
                        samples.min() / unit, samples.max() / unit);
  };
  row(fmt::format("prefill {}, tokens/s", arguments.prompt_tokens), report.prefill, 1);
  row(fmt::format("decode {}, tokens/s", arguments.decode_tokens), report.decode, 1);
  row("read bandwidth, GB/s", report.bandwidth, 1e9);
  if (!report.decode.values.empty()) {
    text += fmt::format("decode reads {:.2f} GB/s of weights: {:.0f} % of the read bandwidth\n",
                        weight_rate(report) * 1e-9, 100 * weight_rate(report) / report.bandwidth.median());
  }
  return text;
}

Result<int> latency(const LatencyArguments& arguments) {
  if (arguments.prompt_tokens == 0 && arguments.decode_tokens == 0) {
    return fail(ErrorCode::kInvalidArgument, "--prompt-tokens",
                "--prompt-tokens and --decode-tokens are both 0");
  }
  ModelArguments model = arguments.model;
  if (model.engine.context_length == 0) {
    model.engine.context_length =
        arguments.depth + std::max({arguments.prompt_tokens + 1, arguments.decode_tokens + 2, 64});
  }
  std::unique_ptr<Engine> engine = TRY(open_engine(model));
  LatencyReport report = TRY(LatencyBench(arguments, *engine).run());
  if (arguments.format == OutputFormat::kJson) {
    TRY(write_json(report_json(arguments, report, engine->model())));
  } else {
    TRY(write_out(report_table(arguments, report, engine->model())));
  }
  return kExitOk;
}

}  // namespace

CommandBody declare_bench_latency(CLI::App& command) {
  auto arguments = std::make_shared<LatencyArguments>();
  set_footer(
      command,
      "Each round measures the memory's read bandwidth, a prefill and a decode, one after the other; the\n"
      "figures are the median, least and greatest of the rounds. Prompts are random tokens, new each time.");
  add_model_options(command, arguments->model);
  constexpr NumberRange<int> kTokens{.min = 0, .max = 1 << 20};
  add_number<int>(command, {"-p,--prompt-tokens", "Tokens of the prefill; 0 = none", "N"}, kTokens,
                  arguments->prompt_tokens);
  add_number<int>(command, {"-n,--decode-tokens", "Tokens of the decode; 0 = none", "N"}, kTokens,
                  arguments->decode_tokens);
  add_number<int>(command, {"--depth", "Tokens in the cache before either begins", "N"}, kTokens,
                  arguments->depth);
  add_number<int>(command, {"--repeat", "Rounds", "N"}, {.min = 1, .max = 1000}, arguments->repeat);
  add_json(command, arguments->format);
  return [arguments] { return latency(*arguments); };
}

}  // namespace quire
