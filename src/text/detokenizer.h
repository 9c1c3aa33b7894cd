// Tokens to text while they come: whole code points only, stop strings honoured across token borders.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "text/tokenizer.h"

namespace quire {

// Where the first token stands: SentencePiece kinds drop one blank at the start of a text, but not in the
// middle.
enum class TextPosition : uint8_t { kStart, kContinuation };

// The text of one sequence as it grows. One thread at a time. Invariants: (1) the concatenation of all that
// push() and finish() return is decode() of all ids up to the first stop string, which is left out;
// (2) nothing that could still become part of a stop string or of a code point is returned early;
// (3) bytes that can no longer become UTF-8 come out as U+FFFD, one for each maximal part of a sequence
// (Unicode 15, section 3.9); (4) the first stop string is the one that ends first, of several the longest, so
// it does not depend on where tokens begin. Cost: under 0.2 us a token without stops.
class Detokenizer {
 public:
  // `tokenizer` outlives it. Control tokens yield no text. Empty stop strings are ignored.
  Detokenizer(const Tokenizer& tokenizer, std::vector<std::string> stops,
              TextPosition position = TextPosition::kStart);

  // Text that became certain. After a stop string was found: empty for ever.
  std::string push(TokenId id);
  // What was held back, at the end of the sequence.
  std::string finish();
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  std::string take_certain();

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::string pending_utf8_;  // an incomplete code point
  std::string held_;          // whole code points that may begin a stop string
  bool at_start_ = true;
  bool stopped_ = false;
};

}  // namespace quire
