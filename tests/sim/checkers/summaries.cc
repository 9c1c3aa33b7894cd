#include "tests/sim/checkers/summaries.h"

#include "base/checked.h"
#include "engine/request_check.h"

namespace quire::sim {

void Summaries::on_answer(const Answered& answered) {
  const Request& wish = answered.wish;
  const Answer& answer = answered.answer;
  const RequestSummary& summary = answer.summary;
  const auto name = answered.request.value;
  const int events_max =
      (static_cast<int>(wish.prompt_token_ids.size()) + wish.sampling.max_tokens + 1) * wish.n;
  if (answer.events > events_max)
    violated("request {} has {} events, at most {}", name, answer.events, events_max);
  if (summary.usage.completion_tokens != answer.token_count())
    violated("request {} counts {} tokens, {} came", name, summary.usage.completion_tokens,
             answer.token_count());
  for (size_t c = 0; c < answer.choices.size(); ++c) {
    const ChoiceAnswer& choice = answer.choices[c];
    const ChoiceSummary& told = summary.choices[c];
    if (choice.goes_back) violated("request {}, choice {}: an event is older than the one before", name, c);
    if (told.finish != choice.finish || told.completion_tokens != static_cast<int>(choice.tokens.size()))
      violated("request {}, choice {}: the summary tells of another answer", name, c);
  }
  const RequestTimings& times = summary.timings;
  const bool has_token = answer.token_count() > 0;
  if (times.queue_ms < 0 || times.total_ms < times.queue_ms ||
      (has_token && (times.ttft_ms < times.queue_ms || times.total_ms < times.ttft_ms)))
    violated("request {} waits {} ms, has its first token at {} ms and ends at {} ms", name, times.queue_ms,
             times.ttft_ms, times.total_ms);
  const RequestKv& kv = summary.kv;
  const bool shares = options().kv_policy != KvPolicy::kPaged || kv.preemptions == 0;
  if ((shares && kv.blocks_used_max > blocks_max(wish)) || kv.blocks_used_max > kv.blocks_as_copies_max)
    violated("request {} held {} blocks at once, {} as copies, at most {}", name, kv.blocks_used_max,
             kv.blocks_as_copies_max, blocks_max(wish));
}

int Summaries::blocks_max(const Request& wish) const {
  const int bt = options().geometry.block_tokens;
  const int sequences = sequences_wanted(wish);
  const int prompt = ceil_div(static_cast<int>(wish.prompt_token_ids.size()), bt);
  const int own = ceil_div(wish.sampling.max_tokens, bt) + 1;
  return static_cast<int>(options().geometry.groups.size()) * (prompt + sequences * own);
}

}  // namespace quire::sim
