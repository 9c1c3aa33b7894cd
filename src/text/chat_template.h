// Chat templates: messages to a prompt, by the Jinja dialect of the ecosystem.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

// A compiled template. Immutable; any thread may render. A template is hostile input: its steps, recursion
// and output size are bounded.
class ChatTemplate {
 public:
  // Errors: kInvalidArgument with line and excerpt.
  static Result<std::unique_ptr<ChatTemplate>> compile(std::string_view source);
  ~ChatTemplate();

  // context_json: an object with messages, tools, documents, add_generation_prompt, bos_token, eos_token and
  // any further variables. now: "YYYY-MM-DDTHH:MM:SS" for strftime_now, nullopt = the local time. Errors:
  // kInvalidArgument; the text of raise_exception() is the message.
  [[nodiscard]] Result<std::string> render(std::string_view context_json,
                                           std::optional<std::string_view> now = std::nullopt) const;

  [[nodiscard]] std::string_view source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
