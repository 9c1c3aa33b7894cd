#include "cli/interrupts.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "cli/commands.h"

namespace quire {
namespace {

TEST(Interrupts, EndTheProcessWhenNobodyListens) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Interrupts interrupts;
        raise(SIGINT);
      },
      testing::ExitedWithCode(kExitInterrupted), "");
}

TEST(Interrupts, ReachAListeningPromptOnce) {
  Interrupts interrupts;
  Interrupts::PromptGuard guard(interrupts);
  EXPECT_FALSE(interrupts.take_prompt_interrupt());
  raise(SIGINT);
  raise(SIGINT);
  EXPECT_TRUE(interrupts.take_prompt_interrupt());
  EXPECT_FALSE(interrupts.take_prompt_interrupt());
}

TEST(Interrupts, OfAnAnswerDoNotReachTheNextPrompt) {
  Interrupts interrupts;
  Interrupts::PromptGuard chat(interrupts);
  raise(SIGINT);
  Interrupts::PromptGuard prompt(interrupts);
  EXPECT_FALSE(interrupts.take_prompt_interrupt());
}

TEST(Interrupts, LeaveTheDefaultBehind) {
  {
    Interrupts interrupts;
  }
  struct sigaction action = {};
  sigaction(SIGINT, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace quire
