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
  int requests = 1000;
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
    } else if (std::strcmp(argv[i], "--requests") == 0 && value <= std::numeric_limits<int>::max()) {
      arguments.requests = static_cast<int>(value);
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
  Simulation simulation(arguments->world ? named_worlds()[*arguments->world] : random_world(arguments->seed),
                        arguments->seed);
  const auto violation = simulation.run(arguments->requests, arguments->steps);
  const Totals& totals = simulation.totals();
  fmt::print(
      "{} requests ({} refused, {} cancelled), {} steps, {} rows, {} preemptions, {} hits, {} copies, {} "
      "forks, {} pins\n",
      totals.requests, totals.refused, totals.cancelled, totals.steps, totals.rows, totals.preemptions,
      totals.hits, totals.copies, totals.forks, totals.pins);
  if (violation) fmt::print(stderr, "{}\n", *violation);
  return violation ? 1 : 0;
}
