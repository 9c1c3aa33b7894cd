#include "cli/conversation.h"

#include <boost/json.hpp>
#include <utility>

namespace quire {
namespace {

namespace json = boost::json;

std::string piece_of(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.token_piece(*id)) : std::string();
}

json::object message_json(std::string_view role, std::string_view content) {
  json::object message;
  message["role"] = role;
  message["content"] = content;
  return message;
}

}  // namespace

Result<std::string> render_messages(const ChatTemplate& chat_template, std::string_view context_json,
                                    std::optional<std::string_view> now) {
  Result<std::string> text = chat_template.render(context_json, now);
  if (text || text.error().code != ErrorCode::kInvalidArgument) return text;
  Error error = std::move(text.error());
  error.code = ErrorCode::kUnsupported;
  return std::unexpected(std::move(error));
}

Conversation::Conversation(const Tokenizer& tokenizer, const ChatTemplate* chat_template)
    : tokenizer_(tokenizer), template_(chat_template) {}

void Conversation::set_system(std::string text) {
  system_.reset();
  if (!text.empty()) system_ = std::move(text);
}

Result<std::string> Conversation::prompt_text() const {
  if (template_ == nullptr) {
    std::string text = system_.value_or("");
    for (const ChatMessage& message : messages_) text += message.content;
    return text;
  }
  json::array messages;
  if (system_) messages.push_back(message_json("system", *system_));
  for (const ChatMessage& message : messages_)
    messages.push_back(message_json(message.role, message.content));
  json::object context;
  context["messages"] = std::move(messages);
  context["tools"] = nullptr;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = true;
  context["bos_token"] = piece_of(tokenizer_, tokenizer_.bos());
  context["eos_token"] = piece_of(tokenizer_, tokenizer_.eos());
  return render_messages(*template_, json::serialize(context));
}

Result<std::vector<TokenId>> Conversation::prompt() const {
  return tokenizer_.encode_prompt(TRY(prompt_text()), SpecialTokens::kParse);
}

}  // namespace quire
