// UTF-8 that may be broken or cut anywhere.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// Moves the decided part of `bytes` to `text`: whole code points as they are, and U+FFFD for each maximal
// part of an ill-formed sequence. What is left in `bytes` (at most 3 bytes) may still become a code point.
void move_decided_utf8(std::string& bytes, std::string& text);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace quire
