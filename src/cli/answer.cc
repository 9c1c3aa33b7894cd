#include "cli/answer.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <utility>

#include "cli/json_output.h"

namespace quire {

namespace {

void take(Answer& answer, TokenEvent& event) {
  if (event.token_id) answer.token_ids.push_back(*event.token_id);
  if (event.logprob) answer.logprobs.push_back({*event.logprob, std::move(event.top_logprobs)});
  std::move(event.prompt_positions.begin(), event.prompt_positions.end(),
            std::back_inserter(answer.prompt_positions));
  answer.text += event.text;
  if (event.finish != FinishReason::kNone) answer.finish = event.finish;
}

}  // namespace

Result<Answer> drain(TokenStream& stream, FunctionRef<Result<void>(std::string_view)> on_text) {
  Answer answer;
  std::optional<Error> fault;
  while (auto event = stream.next()) {
    take(answer, *event);
    if (!event->text.empty() && !fault) {
      Result<void> taken = on_text(event->text);
      if (!taken) {
        fault = taken.error();
        stream.cancel();
      }
    }
    if (event->error && !fault) fault = std::move(event->error);
  }
  if (fault) return std::unexpected(std::move(*fault));
  answer.summary = stream.summary();
  return answer;
}

Result<Answer> drain(TokenStream& stream) {
  return drain(stream, [](std::string_view) -> Result<void> { return {}; });
}

Result<std::vector<Answer>> drain_choices(TokenStream& stream) {
  std::vector<Answer> answers(stream.summary().choices.size());
  std::optional<Error> fault;
  while (auto event = stream.next()) {
    take(answers[static_cast<size_t>(event->choice)], *event);
    if (event->error && !fault) fault = std::move(event->error);
  }
  if (fault) return std::unexpected(std::move(*fault));
  for (Answer& answer : answers) answer.summary = stream.summary();
  return answers;
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
  std::string shared;
  if (choices.size() > 1 || kv.blocks_as_copies_max > kv.blocks_used_max) {
    shared = fmt::format(" · at most {} blocks, {} as copies", kv.blocks_used_max, kv.blocks_as_copies_max);
  }
  return fmt::format(
      "{} prompt tokens ({} cached), {} tokens · TTFT {:.0f} ms · prefill {:.0f} tokens/s · decode {:.1f} "
      "tokens/s · "
      "KV {} blocks of {} tokens ({} used, {}){}",
      usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, timings.ttft_ms,
      timings.prefill_tokens_per_s, timings.decode_tokens_per_s, kv.blocks_used, kv.block_tokens,
      kv.tokens_used, model.kv_type, shared);
}

}  // namespace quire
