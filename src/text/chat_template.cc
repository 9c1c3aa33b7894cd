#include "text/chat_template.h"

#include <time.h>

#include <utility>

#include "base/check.h"
#include "text/text_library.h"

namespace quire {

struct ChatTemplate::Impl {
  TemplateHandle handle;
  std::string source;
};

namespace {

std::string local_time_text() {
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::compile(std::string_view source) {
  CHECK(quire_text_abi_version() == QUIRE_TEXT_ABI_VERSION);
  quire_text_error error{};
  TemplateHandle handle(quire_text_template_new(text_span(source), &error));
  if (!handle) return take_error(error);
  return std::unique_ptr<ChatTemplate>(
      new ChatTemplate(std::make_unique<Impl>(Impl{std::move(handle), std::string(source)})));
}

Result<std::string> ChatTemplate::render(std::string_view context_json,
                                         std::optional<std::string_view> now) const {
  const std::string moment = now ? std::string(*now) : local_time_text();
  quire_text_buffer out{};
  quire_text_error error{};
  if (quire_text_template_render(impl_->handle.get(), text_span(context_json), text_span(moment), &out,
                                 &error) != 0) {
    return take_error(error);
  }
  return take_text(out);
}

std::string_view ChatTemplate::source() const {
  return impl_->source;
}

}  // namespace quire
