// sim --seed N --steps N --requests N [--world N]: simulates until a checker objects.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "tests/sim/simulation.h"

namespace {

struct Arguments {
  uint64_t seed = 1;
  int64_t steps = std::numeric_limits<int64_t>::max();
  int64_t requests = 1000;
  std::optional<size_t> world;  // of the named ones; else one by the seed
};

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return std::nullopt;
    char* end = nullptr;
    const long long value = std::strtoll(argv[i + 1], &end, 10);
    if (*argv[i + 1] == '\0' || *end != '\0' || value < 0) return std::nullopt;
    if (std::strcmp(argv[i], "--seed") == 0) {
      arguments.seed = static_cast<uint64_t>(value);
    } else if (std::strcmp(argv[i], "--steps") == 0) {
      arguments.steps = value;
    } else if (std::strcmp(argv[i], "--requests") == 0) {
      arguments.requests = value;
    } else if (std::strcmp(argv[i], "--world") == 0) {
      arguments.world = static_cast<size_t>(value);
    } else {
      return std::nullopt;
    }
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace quire::sim;
  const auto arguments = parse(argc, argv);
  if (!arguments || (arguments->world && *arguments->world >= named_worlds().size())) {
    fmt::print(stderr, "usage: sim [--seed N] [--steps N] [--requests N] [--world 0..{}]\n",
               named_worlds().size() - 1);
    return 2;
  }
  quire::ThreadPool pool(1);
  Simulation simulation(arguments->world ? named_worlds()[*arguments->world] : random_world(arguments->seed),
                        arguments->seed, pool);
  const auto violation = simulation.run({.requests = arguments->requests, .steps_max = arguments->steps});
  const Totals& totals = simulation.totals();
  fmt::print(
      "{} requests ({} refused, {} broken, {} still there at the end), {} steps, {} rows, {} tokens, {} "
      "preemptions, {} evictions, {} hits, {} copies, {} forks, {} pins, {} events read late\n"
      "left in the inbox {}, queued {}, prefilling {}, decoding {}, forked {}, preempted {}, finished {}\n",
      totals.requests, totals.refused, totals.errors, totals.stopped, totals.steps, totals.rows,
      totals.tokens, totals.preemptions, totals.evictions, totals.hits, totals.copies, totals.forks,
      totals.pins, totals.read_late, totals.left_at[0], totals.left_at[1], totals.left_at[2],
      totals.left_at[3], totals.left_at[4], totals.left_at[5], totals.left_at[6]);
  if (violation) fmt::print(stderr, "{}\n", *violation);
  return violation ? 1 : 0;
}
