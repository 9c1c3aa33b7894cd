// The command line as a whole: which command, its options, and how its faults are told.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

// Parses, runs the command, reports its error. Returns the exit status. Called once, by main().
int run_program(int argc, const char* const* argv);

// "invalid_argument", "not_found", …: the `code` of error objects.
[[nodiscard]] std::string_view error_code_name(ErrorCode code);
[[nodiscard]] int exit_status_of(const Error& error);

// {"error":{"message":…,"field":…,"code":…}} without a line end.
[[nodiscard]] std::string error_json(const Error& error);

}  // namespace quire
