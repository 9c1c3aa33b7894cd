#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/json_output.h"

namespace quire {

Result<void> write_out(std::string_view text) {
  size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0) return {};
  int fault = errno;
  std::string field(kStdoutField);
  if (fault == EPIPE) return fail(ErrorCode::kCancelled, field, "the reader of stdout went away");
  return fail(ErrorCode::kIo, field, "cannot write to stdout: {}", std::strerror(fault));
}

Result<void> write_json(const boost::json::value& value) {
  return write_out(to_json(value) + "\n");
}

bool stdin_is_terminal() {
  return isatty(STDIN_FILENO) == 1;
}
bool stdout_is_terminal() {
  return isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

std::string human_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace quire
