// A conversation and the prompt that it makes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quire/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// Renders; a template that refuses its messages gives kUnsupported, for it is no fault of the command line.
[[nodiscard]] Result<std::string> render_messages(const ChatTemplate& chat_template,
                                                  std::string_view context_json,
                                                  std::optional<std::string_view> now = std::nullopt);

// Messages in order, for one engine. The command's thread. Invariant: prompt() of a longer conversation
// begins with what the shorter one gave wherever the template allows it, so that its KV is found in the
// cache.
class Conversation {
 public:
  // `tokenizer` outlives it. Without a template the contents follow one another as raw text.
  Conversation(const Tokenizer& tokenizer, const ChatTemplate* chat_template);

  [[nodiscard]] bool is_raw() const { return template_ == nullptr; }
  void set_system(std::string text);  // "" removes it
  void add(ChatMessage message) { messages_.push_back(std::move(message)); }
  void drop_last() { messages_.pop_back(); }
  void clear() { messages_.clear(); }
  [[nodiscard]] size_t size() const { return messages_.size(); }
  [[nodiscard]] const std::optional<std::string>& system() const { return system_; }

  // The text of the conversation so far, ending where the assistant's turn begins. Errors: of the template.
  [[nodiscard]] Result<std::string> prompt_text() const;
  [[nodiscard]] Result<std::vector<TokenId>> prompt() const;

 private:
  const Tokenizer& tokenizer_;
  const ChatTemplate* template_;
  std::optional<std::string> system_;
  std::vector<ChatMessage> messages_;
};

}  // namespace quire
