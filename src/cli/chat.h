// The interactive conversation of `quire run`.
#pragma once

#include "base/result.h"
#include "cli/conversation.h"
#include "cli/interrupts.h"
#include "quire/engine.h"

namespace quire {

struct ChatSetup {
  Engine* engine = nullptr;          // outlives the chat
  Interrupts* interrupts = nullptr;  // outlives the chat
  SamplingParams sampling;
  bool max_tokens_given = false;  // else an answer may be as long as kChatAnswerTokens
  Conversation conversation;
};

inline constexpr int kChatAnswerTokens = 1024;

// Until Ctrl-D or /quit. Returns the exit status. Errors: stdout only; a refused prompt is told and
// forgotten.
[[nodiscard]] Result<int> chat(ChatSetup setup);

}  // namespace quire
