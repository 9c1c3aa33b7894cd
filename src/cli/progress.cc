#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli/output.h"

namespace quire {
namespace {

constexpr int kBarCells = 24;
constexpr int64_t kRedrawNs = 100'000'000;
constexpr int64_t kLineNs = 10'000'000'000;

std::string minutes(double seconds) {
  auto whole = static_cast<int64_t>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::string unit, int64_t total, Style style, const Clock& clock)
    : unit_(std::move(unit)),
      total_(std::max<int64_t>(total, 1)),
      style_(style),
      clock_(clock),
      started_ns_(clock.now_ns()),
      shown_ns_(started_ns_) {}

Progress::~Progress() {
  finish();
}

std::string Progress::line(int64_t done, double elapsed_s, std::string_view note) const {
  double part = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
  std::string text = fmt::format("{:3.0f} %  {}/{} {}", part * 100, done, total_, unit_);
  if (style_ == Style::kBar) {
    int cells = static_cast<int>(part * kBarCells);
    text = fmt::format("[{}{}] {}", std::string(cells, '='), std::string(kBarCells - cells, ' '), text);
  }
  if (part > 0 && part < 1) text += fmt::format("  ETA {}", minutes(elapsed_s * (1 - part) / part));
  if (!note.empty()) text += fmt::format("  {}", note);
  return text;
}

void Progress::update(int64_t done, std::string_view note) {
  int64_t now = clock_.now_ns();
  bool due = now - shown_ns_ >= (style_ == Style::kBar ? kRedrawNs : kLineNs);
  if (!due && (style_ != Style::kBar || on_screen_)) return;
  shown_ns_ = now;
  std::string text = line(done, static_cast<double>(now - started_ns_) * 1e-9, note);
  if (style_ == Style::kBar) {
    fmt::print(stderr, "\r{}\x1b[K", text);
    on_screen_ = true;
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  std::fflush(stderr);
}

void Progress::finish() {
  if (!on_screen_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  on_screen_ = false;
}

Progress::Style progress_style() {
  return stderr_is_terminal() ? Progress::Style::kBar : Progress::Style::kSparseLines;
}

}  // namespace quire
