// How far a long command has come, told on stderr.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace quire {

// A bar with an estimate of the rest on a terminal; elsewhere a line every ten seconds. Made and used by the
// command's thread. Invariant: after finish() (or the destructor) the terminal's line is clean again.
class Progress {
 public:
  enum class Style { kBar, kSparseLines };

  // `total` > 0 units, named for people ("windows"). `clock` outlives it.
  Progress(std::string unit, int64_t total, Style style, const Clock& clock);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // At most ten redraws a second. `note` stands behind the numbers.
  void update(int64_t done, std::string_view note);
  void finish();

  // The line for `done` at `elapsed_s`, without control characters; for update() and tests.
  [[nodiscard]] std::string line(int64_t done, double elapsed_s, std::string_view note) const;

 private:
  const std::string unit_;
  const int64_t total_;
  const Style style_;
  const Clock& clock_;
  const int64_t started_ns_;
  int64_t shown_ns_;
  bool on_screen_ = false;
};

// kBar when stderr is a terminal.
[[nodiscard]] Progress::Style progress_style();

}  // namespace quire
