#include "cli/answer.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <utility>

#include "cli/json_output.h"

namespace quire {

Result<Answer> drain(TokenStream& stream, FunctionRef<Result<void>(std::string_view)> on_text) {
  Answer answer;
  std::optional<Error> fault;
  while (auto event = stream.next()) {
    if (event->token_id) answer.token_ids.push_back(*event->token_id);
    if (event->logprob) answer.logprobs.push_back({*event->logprob, std::move(event->top_logprobs)});
    std::move(event->prompt_positions.begin(), event->prompt_positions.end(),
              std::back_inserter(answer.prompt_positions));
    answer.text += event->text;
    if (!event->text.empty() && !fault) {
      Result<void> taken = on_text(event->text);
      if (!taken) {
        fault = taken.error();
        stream.cancel();
      }
    }
    if (event->error && !fault) fault = std::move(event->error);
    if (event->finish != FinishReason::kNone) answer.finish = event->finish;
  }
  if (fault) return std::unexpected(std::move(*fault));
  answer.summary = stream.summary();
  return answer;
}

Result<Answer> drain(TokenStream& stream) {
  return drain(stream, [](std::string_view) -> Result<void> { return {}; });
}

boost::json::array top_json(const std::vector<TokenLogprob>& top) {
  boost::json::array rows;
  for (const TokenLogprob& entry : top) {
    boost::json::array row;
    row.emplace_back(entry.token_id);
    row.emplace_back(json_float(entry.logprob));
    rows.emplace_back(std::move(row));
  }
  return rows;
}

std::string figures_line(const Answer& answer, const ModelInfo& model) {
  const auto& [usage, timings, kv, choices] = answer.summary;
  return fmt::format(
      "{} prompt tokens ({} cached), {} tokens · TTFT {:.0f} ms · prefill {:.0f} tokens/s · decode {:.1f} "
      "tokens/s · "
      "KV {} blocks of {} tokens ({} used, {})",
      usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, timings.ttft_ms,
      timings.prefill_tokens_per_s, timings.decode_tokens_per_s, kv.blocks_used, kv.block_tokens,
      kv.tokens_used, model.kv_type);
}

}  // namespace quire
