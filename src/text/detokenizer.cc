#include "text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "text/utf8_text.h"

namespace quire {

namespace {

// Length of the longest suffix of `text` that begins `stop` without being all of it.
size_t overlap(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, std::vector<std::string> stops, TextPosition position)
    : tokenizer_(tokenizer),
      stops_(std::move(stops)),
      at_start_(position == TextPosition::kStart && tokenizer.strips_leading_blank()) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string Detokenizer::push(TokenId id) {
  if (stopped_) return {};
  std::string_view bytes = tokenizer_.token_bytes(id);
  if (bytes.empty()) return {};
  if (std::exchange(at_start_, false) && bytes.front() == ' ') bytes.remove_prefix(1);
  pending_utf8_.append(bytes);
  move_decided_utf8(pending_utf8_, held_);
  return take_certain();
}

std::string Detokenizer::finish() {
  if (stopped_) return {};
  if (!std::exchange(pending_utf8_, {}).empty()) held_.append(kReplacementCharacter);
  std::string text = take_certain();
  if (!stopped_) text.append(std::exchange(held_, {}));
  return text;
}

std::string Detokenizer::take_certain() {
  if (stops_.empty()) return std::exchange(held_, {});
  size_t first_end = std::string::npos;
  size_t first_start = 0;
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    keep = std::max(keep, overlap(held_, stop));
    const size_t start = held_.find(stop);
    if (start == std::string::npos) continue;
    const size_t end = start + stop.size();
    if (end < first_end || (end == first_end && start < first_start)) {
      first_end = end;
      first_start = start;
    }
  }
  std::string text;
  if (first_end != std::string::npos) {
    text = held_.substr(0, first_start);
    held_.clear();
    pending_utf8_.clear();
    stopped_ = true;
  } else {
    text = held_.substr(0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
  }
  return text;
}

}  // namespace quire
