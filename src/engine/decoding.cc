#include "engine/decoding.h"

#include "engine/beam_decoding.h"
#include "engine/sample_decoding.h"

namespace quire {

std::unique_ptr<Decoding> make_decoding(const DecodingStart& start) {
  if (start.beam) return std::make_unique<BeamDecoding>(start);
  return std::make_unique<SampleDecoding>(start);
}

StopWatch::StopWatch(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
    : tokenizer_(&tokenizer) {
  if (!stops.empty()) text_.emplace(tokenizer, stops, TextPosition::kContinuation);
}

bool StopWatch::push(TokenId token) {
  if (!text_ || token >= tokenizer_->vocab_size()) return false;
  (void)text_->push(token);
  return text_->stopped();
}

}  // namespace quire
