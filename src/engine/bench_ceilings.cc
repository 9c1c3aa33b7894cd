// What the machine does at most, with one thread and with those of the kernels.
#include <algorithm>

#include "engine/bench_variants.h"
#include "kernels/ceilings.h"

namespace quire {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;     // that a thread reads in one go
constexpr size_t kCacheBytes = size_t{128} << 10;  // a thread's, read again and again
constexpr int64_t kTurns = 64;                     // of an operation probe in a piece

struct CeilingCase {
  const CeilingTable* table = nullptr;
  int threads = 1;
};

BenchVariant variant_of(const CeilingCase& ceiling, CeilingKind kind) {
  BenchVariant variant;
  variant.figure.isa = ceiling.table->name;
  variant.figure.threads = ceiling.threads;
  variant.ceiling = kind;
  return variant;
}

// Results are wanted: the compiler must not drop a read.
void keep(uint32_t value) {
  asm volatile("" : : "r"(value));
}

void add_reads(const CeilingCase& ceiling, const std::shared_ptr<WeightMemory>& memory,
               std::vector<BenchVariant>& variants) {
  const CeilingTable& table = *ceiling.table;
  if (table.read_memory == nullptr) return;
  const size_t go = std::min(kReadBytes, memory->size());
  BenchVariant streamed = variant_of(ceiling, CeilingKind::kMemoryRead);
  streamed.piece.bytes = static_cast<double>(go) * ceiling.threads;
  streamed.run = [&table, memory, go](ThreadPool& team, int64_t count) {
    const WeightMemory::Slots slots = memory->take(go, count * team.size());
    team.run([&](int member) {
      for (int64_t i = 0; i < count; ++i) keep(table.read_memory({slots.at(count * member + i), go}));
    });
  };
  variants.push_back(std::move(streamed));

  const size_t near = std::min(kCacheBytes, memory->size());
  BenchVariant cached = variant_of(ceiling, CeilingKind::kCacheRead);
  cached.piece.bytes = static_cast<double>(near) * ceiling.threads;
  cached.run = [&table, memory, near](ThreadPool& team, int64_t count) {
    const WeightMemory::Slots slots{memory->data(), near, 0, static_cast<int64_t>(memory->size() / near)};
    team.run([&](int member) {
      for (int64_t i = 0; i < count; ++i) keep(table.read_cache({slots.at(member), near}));
    });
  };
  variants.push_back(std::move(cached));
}

void add_operations(const CeilingCase& ceiling, CeilingKind kind, OperationProbe probe,
                    std::vector<BenchVariant>& variants) {
  if (probe == nullptr) return;
  BenchVariant variant = variant_of(ceiling, kind);
  variant.piece.operations = static_cast<double>(probe(kTurns)) * ceiling.threads;
  variant.run = [probe](ThreadPool& team, int64_t count) { team.run([&](int) { probe(kTurns * count); }); };
  variants.push_back(std::move(variant));
}

}  // namespace

void add_ceilings(const KernelBenchOptions& options, const std::shared_ptr<WeightMemory>& memory,
                  std::vector<BenchVariant>& variants) {
  std::vector<const CeilingTable*> tables;
  for (const std::string& isa : options.isas) {
    if (const CeilingTable* table = find_ceilings(isa)) tables.push_back(table);
  }
  for (const CeilingTable* table : tables) {
    for (int threads : options.ceiling_threads) {
      const CeilingCase ceiling{table, threads};
      add_reads(ceiling, memory, variants);
      add_operations(ceiling, CeilingKind::kFloatFma, table->float_fma, variants);
      add_operations(ceiling, CeilingKind::kInt8Dot, table->int8_dot, variants);
      add_operations(ceiling, CeilingKind::kInt8DotSum32, table->int8_dot_sum32, variants);
      add_operations(ceiling, CeilingKind::kInt16Dot, table->int16_dot, variants);
    }
  }
}

}  // namespace quire
