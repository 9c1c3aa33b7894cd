// Text that a command is given: as an option, in a file, or on stdin.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace quire {

// A file's bytes as they are; "-" is stdin. Errors: kNotFound, kIo, kResourceExhausted beyond 1 GiB.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path);
// All of stdin.
[[nodiscard]] Result<std::string> read_stdin();

struct TextSource {
  std::optional<std::string> text;  // wins
  std::optional<std::string> file;
};
// Error kInvalidArgument when neither is given.
[[nodiscard]] Result<std::string> read_text(const TextSource& source);

}  // namespace quire
