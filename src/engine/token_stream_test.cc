#include "engine/token_stream.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "engine/tiny_engine.h"

namespace quire {
namespace {

TEST(TokenStream, GivesTheSameTokensToWhoDoesNotSleep) {
  auto engine = open_tiny();
  const Request request{.prompt_token_ids = random_prompt(20, 5),
                        .sampling = {.max_tokens = 12, .ignore_eos = true}};
  TokenStream slept = engine->submit(request).value();
  const Answer expected = read_all(slept);

  TokenStream stream = engine->submit(request).value();
  std::vector<int32_t> ids;
  FinishReason finish = FinishReason::kNone;
  double last_ms = 0;
  while (finish == FinishReason::kNone) {
    const auto event = stream.try_next();
    if (!event) {
      std::this_thread::yield();
      continue;
    }
    if (event->token_id) ids.push_back(*event->token_id);
    finish = event->finish;
    EXPECT_GE(event->at_ms, last_ms);
    last_ms = event->at_ms;
  }
  EXPECT_EQ(ids, expected.ids);
  EXPECT_EQ(finish, FinishReason::kLength);
  EXPECT_EQ(last_ms, stream.summary().timings.total_ms);
  EXPECT_FALSE(stream.try_next());
}

}  // namespace
}  // namespace quire
