#include "cli/read_bandwidth.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/clock.h"

namespace quire {
namespace {

constexpr size_t kBufferBytesMin = size_t{256} << 20;
constexpr size_t kBufferBytesMax = size_t{1} << 30;

size_t buffer_bytes() {
  long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  size_t wanted = cache > 0 ? 2 * static_cast<size_t>(cache) : 0;
  return std::clamp(wanted, kBufferBytesMin, kBufferBytesMax);
}

// Eight streams at once: more of the memory's parallelism than one stream with the hardware's prefetcher.
uint64_t sum_words(const uint64_t* words, size_t count) {
  constexpr size_t kStreams = 8, kLanes = 8;
  uint64_t sums[kStreams][kLanes] = {};
  size_t stream_words = count / kStreams / kLanes * kLanes;
  for (size_t at = 0; at < stream_words; at += kLanes) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const uint64_t* line = words + stream * stream_words + at;
      __builtin_prefetch(line + 512);
      for (size_t lane = 0; lane < kLanes; ++lane) sums[stream][lane] += line[lane];
    }
  }
  uint64_t sum = 0;
  for (const auto& stream : sums) {
    for (uint64_t lane : stream) sum += lane;
  }
  return sum;
}

// Large pages where the system has them, so that page walks do not count. nullptr without memory.
uint64_t* map_words(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<uint64_t*>(memory);
}

}  // namespace

void ReadBandwidth::Unmap::operator()(uint64_t* words) const {
  munmap(words, bytes);
}

Result<std::unique_ptr<ReadBandwidth>> ReadBandwidth::make(int threads) {
  size_t bytes = buffer_bytes();
  Buffer buffer(map_words(bytes), Unmap{bytes});
  if (buffer == nullptr) {
    return fail(ErrorCode::kResourceExhausted, "memory", "no {} bytes of memory to measure its bandwidth",
                bytes);
  }
  return std::unique_ptr<ReadBandwidth>(new ReadBandwidth(std::move(buffer), threads));
}

ReadBandwidth::ReadBandwidth(Buffer buffer, int threads)
    : buffer_(std::move(buffer)), words_(buffer_.get_deleter().bytes / sizeof(uint64_t)), pool_(threads) {
  pool_.run([this](int member) {
    Share share = share_of(static_cast<int64_t>(words_), member, pool_.size());
    for (int64_t i = share.begin; i < share.end; ++i)
      buffer_[static_cast<size_t>(i)] = static_cast<uint64_t>(i);
  });
}

double ReadBandwidth::measure() {
  return std::max({pass(), pass(), pass()});
}

double ReadBandwidth::pass() {
  MonotonicClock clock;
  std::atomic<uint64_t> total{0};  // keeps the reads alive
  int64_t started = clock.now_ns();
  pool_.run([&](int member) {
    Share share = share_of(static_cast<int64_t>(words_), member, pool_.size());
    total += sum_words(buffer_.get() + share.begin, static_cast<size_t>(share.end - share.begin));
  });
  double seconds = static_cast<double>(clock.now_ns() - started) * 1e-9;
  return static_cast<double>(words_ * sizeof(uint64_t)) / seconds;
}

}  // namespace quire
