// quire bench kernels: the kernels alone, beside what the machine does at most.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/bench_commands.h"
#include "cli/command_options.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/samples.h"
#include "engine/kernel_bench.h"
#include "engine/machine.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr uint64_t kMegabyte = 1'000'000;

struct KernelsArguments {
  std::optional<std::string> isas, kernels, types, kv_types;  // absent: see the help
  std::vector<int> rows{1, 4, 16, 64, 512};
  std::vector<int> threads{0};
  int in = 1536;
  int depth = 8192;
  std::optional<int> rounds;
  float seconds = 60;
  int set_mb = static_cast<int>(default_set_bytes() / kMegabyte);
  uint64_t seed = 1;
  OutputFormat format = OutputFormat::kText;
};

// The names between the commas of `text`, each once. `find` yields a std::optional.
template <class T, class Find>
Result<std::vector<T>> parse_names(const std::string& option, const std::string& text,
                                   const std::vector<std::string>& known, Find find) {
  std::vector<T> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    const std::optional<T> value = find(name);
    if (!value) {
      return fail(ErrorCode::kInvalidArgument, option, "{}: '{}' is not known here; known are {}", option,
                  name, fmt::join(known, ", "));
    }
    if (std::ranges::find(values, *value) == values.end()) values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

std::vector<int> distinct(const std::vector<int>& values) {
  std::vector<int> result;
  for (int value : values) {
    if (std::ranges::find(result, value) == result.end()) result.push_back(value);
  }
  return result;
}

Result<std::vector<std::string>> chosen_isas(const KernelsArguments& arguments, const MachineInfo& machine) {
  if (!arguments.isas) {  // all but the reference
    if (machine.isas.size() == 1) return machine.isas;
    return std::vector<std::string>(machine.isas.begin() + 1, machine.isas.end());
  }
  return parse_names<std::string>("--isa", *arguments.isas, machine.isas,
                                  [&](const std::string& name) -> std::optional<std::string> {
                                    if (std::ranges::find(machine.isas, name) == machine.isas.end())
                                      return std::nullopt;
                                    return name;
                                  });
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (BenchKernel kernel : bench_kernels()) names.emplace_back(bench_kernel_name(kernel));
  return names;
}

Result<std::vector<BenchKernel>> chosen_kernels(const KernelsArguments& arguments) {
  const auto all = bench_kernels();
  if (!arguments.kernels) return std::vector<BenchKernel>(all.begin(), all.end());
  return parse_names<BenchKernel>("--kernels", *arguments.kernels, kernel_names(),
                                  [&](const std::string& name) -> std::optional<BenchKernel> {
                                    for (BenchKernel kernel : all) {
                                      if (bench_kernel_name(kernel) == name) return kernel;
                                    }
                                    return std::nullopt;
                                  });
}

Result<std::vector<TensorType>> chosen_types(const KernelsArguments& arguments) {
  std::vector<TensorType> all;
  std::vector<std::string> known;
  for (const TensorTypeInfo& info : tensor_types()) {
    all.push_back(info.type);
    known.emplace_back(info.name);
  }
  if (!arguments.types) return all;
  return parse_names<TensorType>("--types", *arguments.types, known,
                                 [&](const std::string& name) -> std::optional<TensorType> {
                                   for (TensorType type : all) {
                                     if (tensor_type_info(type).name == name) return type;
                                   }
                                   return std::nullopt;
                                 });
}

Result<std::vector<KvType>> chosen_kv_types(const KernelsArguments& arguments) {
  const std::string names = arguments.kv_types.value_or("f16,bf16,fp8,int8,int4");
  return parse_names<KvType>("--kv-types", names, {kv_type_names()},
                             [](const std::string& name) { return kv_type_from_name(name); });
}

// Rows of matrices are whole blocks, and whole groups of activations.
Result<void> check_inputs(int in, const std::vector<TensorType>& types) {
  constexpr int kActivationGroup = 32;
  if (in % kActivationGroup != 0) {
    return fail(ErrorCode::kInvalidArgument, "--in", "--in: {} is not a multiple of {}", in,
                kActivationGroup);
  }
  for (TensorType type : types) {
    const TensorTypeInfo& info = tensor_type_info(type);
    if (in % info.block_elements != 0) {
      return fail(ErrorCode::kInvalidArgument, "--in", "--in: {} is not a multiple of {}, as {} needs", in,
                  info.block_elements, info.name);
    }
  }
  return {};
}

Result<KernelBenchOptions> bench_options(const KernelsArguments& arguments, const MachineInfo& machine) {
  KernelBenchOptions options;
  options.isas = TRY(chosen_isas(arguments, machine));
  options.kernels = TRY(chosen_kernels(arguments));
  options.types = TRY(chosen_types(arguments));
  options.kv_types = TRY(chosen_kv_types(arguments));
  TRY(check_inputs(arguments.in, options.types));
  options.rows = distinct(arguments.rows);
  const int all_threads = std::min(machine.usable_cpus, kBenchThreadsMax);
  std::vector<int> threads = arguments.threads;
  for (int& count : threads) count = count == 0 ? all_threads : count;
  options.threads = distinct(threads);
  threads.insert(threads.end(), {1, all_threads});
  const std::set<int> ascending(threads.begin(), threads.end());
  options.ceiling_threads.assign(ascending.begin(), ascending.end());
  options.in = arguments.in;
  options.depth = arguments.depth;
  options.set_bytes = static_cast<size_t>(arguments.set_mb) * kMegabyte;
  options.seed = arguments.seed;
  return options;
}

// As many rounds as were asked for, or as fit the time; one at least.
void measure(const KernelsArguments& arguments, const Clock& clock, int64_t begin_ns, KernelBench& bench) {
  const auto elapsed_s = [&] { return static_cast<double>(clock.now_ns() - begin_ns) * 1e-9; };
  const auto whole_seconds = static_cast<int64_t>(arguments.seconds) + 1;
  Progress progress(arguments.rounds ? "rounds" : "seconds", arguments.rounds.value_or(whole_seconds),
                    progress_style(), clock);
  double round_s = 0;
  do {
    const double before_s = elapsed_s();
    bench.measure_round();
    round_s = elapsed_s() - before_s;
    progress.update(
        arguments.rounds ? bench.rounds() : std::min(static_cast<int64_t>(elapsed_s()), whole_seconds), "");
  } while (arguments.rounds ? bench.rounds() < *arguments.rounds
                            : elapsed_s() + round_s <= arguments.seconds);
  progress.finish();
}

struct KernelsReport {
  KernelBenchOptions options;
  std::vector<CeilingFigure> ceilings;
  std::vector<KernelFigure> kernels;
  int rounds = 0;
  double seconds = 0;
};

Samples samples_of(const std::vector<double>& values) {
  return {.values = values};
}

// The median ceiling of the kernel's ISA and threads; where that ISA has none of its own, the best of others.
double ceiling_rate(const KernelsReport& report, const KernelFigure& kernel, CeilingKind kind) {
  double best = 0;
  for (const CeilingFigure& ceiling : report.ceilings) {
    if (ceiling.kind != kind || ceiling.threads != kernel.threads) continue;
    const double rate = samples_of(ceiling.rates).median();
    if (ceiling.isa == kernel.isa) return rate;
    best = std::max(best, rate);
  }
  return best;
}

// What is told of a kernel beside its times.
struct KernelRates {
  Samples seconds;
  double gb_per_s = 0;
  double gop_per_s = 0;
  double share = 0;
  std::string_view bound;  // a ceiling
};

KernelRates rates_of(const KernelsReport& report, const KernelFigure& kernel) {
  KernelRates rates{.seconds = samples_of(kernel.seconds)};
  const double median = rates.seconds.median();
  rates.gb_per_s = kernel.work.bytes / median * 1e-9;
  rates.gop_per_s = kernel.work.operations / median * 1e-9;
  const Roof roof{ceiling_rate(report, kernel, kernel.bytes_bound),
                  ceiling_rate(report, kernel, kernel.operations_bound)};
  const RoofShare share = share_of_roof(kernel.work, roof, median);
  rates.share = share.share;
  rates.bound =
      ceiling_name(share.limit == Limit::kOperations ? kernel.operations_bound : kernel.bytes_bound);
  return rates;
}

json::object kernel_json(const KernelsReport& report, const KernelFigure& kernel) {
  const KernelRates rates = rates_of(report, kernel);
  json::object row;
  row["kernel"] = bench_kernel_name(kernel.kernel);
  if (!kernel.type.empty()) row["type"] = kernel.type;
  row["rows"] = kernel.rows;
  row["isa"] = kernel.isa;
  row["threads"] = kernel.threads;
  row["bytes"] = kernel.work.bytes;
  if (kernel.work.operations > 0) row["operations"] = kernel.work.operations;
  row["time_us"] = spread_json(rates.seconds, 1e-6);
  row["gb_per_s"] = rates.gb_per_s;
  if (kernel.work.operations > 0) row["gop_per_s"] = rates.gop_per_s;
  row["share"] = rates.share;
  row["bound"] = rates.bound;
  return row;
}

json::object report_json(const KernelsReport& report, const MachineInfo& machine) {
  json::object result;
  result["cpu"] = machine.cpu;
  result["usable_cpus"] = machine.usable_cpus;
  result["rounds"] = report.rounds;
  result["seconds"] = report.seconds;
  result["set_bytes"] = report.options.set_bytes;
  result["out"] = kBenchOutputs;
  result["in"] = report.options.in;
  result["depth"] = report.options.depth;
  result["seed"] = report.options.seed;
  json::array ceilings;
  for (const CeilingFigure& ceiling : report.ceilings) {
    ceilings.push_back(json::object{
        {"isa", ceiling.isa},
        {"ceiling", ceiling_name(ceiling.kind)},
        {"threads", ceiling.threads},
        {is_read(ceiling.kind) ? "gb_per_s" : "gop_per_s", spread_json(samples_of(ceiling.rates), 1e9)}});
  }
  result["ceilings"] = std::move(ceilings);
  json::array kernels;
  for (const KernelFigure& kernel : report.kernels) kernels.push_back(kernel_json(report, kernel));
  result["kernels"] = std::move(kernels);
  return result;
}

std::string report_table(const KernelsReport& report, const MachineInfo& machine) {
  std::string text = fmt::format("{} · matrices {} x {} · depth {} · {} a set · {} round{}\n", machine.cpu,
                                 kBenchOutputs, report.options.in, report.options.depth,
                                 human_bytes(static_cast<double>(report.options.set_bytes)), report.rounds,
                                 report.rounds == 1 ? "" : "s, medians");
  text += fmt::format("{:<16} {:<8} {:>7} {:>10} {:>10} {:>10}\n", "ceiling", "isa", "threads", "median",
                      "min", "max");
  for (const CeilingFigure& ceiling : report.ceilings) {
    const Samples rates = samples_of(ceiling.rates);
    text += fmt::format("{:<16} {:<8} {:>7} {:>10.1f} {:>10.1f} {:>10.1f} {}\n", ceiling_name(ceiling.kind),
                        ceiling.isa, ceiling.threads, rates.median() * 1e-9, rates.min() * 1e-9,
                        rates.max() * 1e-9, is_read(ceiling.kind) ? "GB/s" : "GOP/s");
  }
  text +=
      fmt::format("\n{:<17} {:<6} {:>4} {:<8} {:>7} {:>11} {:>11} {:>11} {:>7} {:>8} {:>6}  {}\n", "kernel",
                  "type", "rows", "isa", "threads", "time us", "min", "max", "GB/s", "GOP/s", "share", "of");
  for (const KernelFigure& kernel : report.kernels) {
    const KernelRates rates = rates_of(report, kernel);
    text += fmt::format(
        "{:<17} {:<6} {:>4} {:<8} {:>7} {:>11.2f} {:>11.2f} {:>11.2f} {:>7.1f} {:>8} {:>4.0f} %  {}\n",
        bench_kernel_name(kernel.kernel), kernel.type, kernel.rows, kernel.isa, kernel.threads,
        rates.seconds.median() * 1e6, rates.seconds.min() * 1e6, rates.seconds.max() * 1e6, rates.gb_per_s,
        kernel.work.operations > 0 ? fmt::format("{:.1f}", rates.gop_per_s) : "", 100 * rates.share,
        rates.bound);
  }
  return text;
}

Result<int> kernels(const KernelsArguments& arguments) {
  const MonotonicClock clock;
  const int64_t begin_ns = clock.now_ns();
  const MachineInfo machine = describe_machine();
  KernelsReport report {
    .options = TRY(bench_options(arguments, machine))
  };
  const std::unique_ptr<KernelBench> bench = TRY(KernelBench::make(report.options));
  measure(arguments, clock, begin_ns, *bench);
  report.ceilings = bench->ceilings();
  report.kernels = bench->kernels();
  report.rounds = bench->rounds();
  report.seconds = static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
  if (arguments.format == OutputFormat::kJson) {
    TRY(write_json(report_json(report, machine)));
  } else {
    TRY(write_out(report_table(report, machine)));
  }
  return kExitOk;
}

}  // namespace

CommandBody declare_bench_kernels(CLI::App& command) {
  auto arguments = std::make_shared<KernelsArguments>();
  KernelsArguments& to = *arguments;
  set_footer(
      command,
      "Each round times every kernel and every ceiling once, in a random order. Times are of one call: a\n"
      "product with a whole matrix, one row of a row kernel, the attention of one layer. GB/s are bytes of\n"
      "packed weights or stored K and V; the share is that of the lower of the two ceilings that bound the\n"
      "kernel. Compare figures only from runs on an otherwise idle machine.");
  add_text(command,
           {"--kernels", fmt::format("Which of {}; default: all", fmt::join(kernel_names(), ", ")), "NAME,…"},
           to.kernels);
  add_text(command, {"--isa", "Instruction sets; default: all that run here but the reference", "NAME,…"},
           to.isas);
  add_text(command, {"--types", "Types of the weights; default: all", "TYPE,…"}, to.types);
  add_text(command,
           {"--kv-types", "Types of K and V: " + kv_type_names() + "; default: all but f32", "TYPE,…"},
           to.kv_types);
  add_numbers(command, {"--rows", "Rows of activations of the products", "N,N,…"}, {.min = 1, .max = 4096},
              to.rows);
  add_numbers(command, {"--threads", "Threads; 0 = one per usable CPU", "N,N,…"},
              {.min = 0, .max = kBenchThreadsMax}, to.threads);
  add_number<int>(command, {"--in", "Inputs of the matrices", "N"}, {.min = 32, .max = 65536}, to.in);
  add_number<int>(command, {"--depth", "Tokens in the cache of a decoded row", "N"},
                  {.min = 256, .max = 1 << 20}, to.depth);
  add_number<int>(command,
                  {"--set-mb", "MB of weights, and of K and V of each type; more than the caches hold", "N"},
                  {.min = 1, .max = 65536}, to.set_mb);
  CLI::Option* seconds = add_number<float>(command, {"--seconds", "As many rounds as fit; one at least", "X"},
                                           {.min = 0, .max = 86400, .lower = Bound::kExcluded}, to.seconds);
  CLI::Option* rounds = add_number<int>(command, {"--rounds", "Rounds, however long they take", "N"},
                                        {.min = 1, .max = 1000}, to.rounds);
  exclude(rounds, seconds);
  add_number<uint64_t>(command, {"--seed", "Of the order of measurements", "N"}, {}, to.seed);
  add_json(command, to.format);
  return [arguments] { return kernels(*arguments); };
}

}  // namespace quire
