// What a command says on stdout.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

// The field of errors of write_out(). kCancelled means that the reader went away: a quiet end.
inline constexpr std::string_view kStdoutField = "stdout";

// Writes and flushes. Errors: kCancelled (closed pipe), kIo (disk full …).
[[nodiscard]] Result<void> write_out(std::string_view text);
// One line of JSON.
[[nodiscard]] Result<void> write_json(const boost::json::value& value);

[[nodiscard]] bool stdin_is_terminal();
[[nodiscard]] bool stdout_is_terminal();
[[nodiscard]] bool stderr_is_terminal();

// "12.3 MB": decimal units.
[[nodiscard]] std::string human_bytes(double bytes);

// How a command prints its result.
enum class OutputFormat { kText, kJson };

}  // namespace quire
