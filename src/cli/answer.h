// Answers of the engine, drained from their stream.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "quire/engine.h"

namespace quire {

struct ChosenLogprob {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // best first
};

struct Answer {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<ChosenLogprob> logprobs;           // when asked for
  std::vector<PromptPosition> prompt_positions;  // when asked for
  FinishReason finish = FinishReason::kNone;
  RequestSummary summary;
};

// Reads `stream`, of one choice, to its end and hands each piece of text to `on_text` as it comes; when that
// fails, the request is cancelled. Errors: of the stream, and of on_text.
[[nodiscard]] Result<Answer> drain(TokenStream& stream, FunctionRef<Result<void>(std::string_view)> on_text);
// Without interest in pieces.
[[nodiscard]] Result<Answer> drain(TokenStream& stream);
// All choices, each with the summary of the whole request.
[[nodiscard]] Result<std::vector<Answer>> drain_choices(TokenStream& stream);

// [[id, logprob], …]
[[nodiscard]] boost::json::array top_json(const std::vector<TokenLogprob>& top);

// "41 prompt tokens (0 cached), 64 tokens · TTFT 55 ms · …": one line for people.
[[nodiscard]] std::string figures_line(const Answer& answer, const ModelInfo& model);

}  // namespace quire
