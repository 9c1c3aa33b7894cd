// Fuzzes chat templates: a template, a NUL byte, and the JSON context that it is rendered with.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t border = input.find('\0');
  const auto chat_template = quire::ChatTemplate::compile(input.substr(0, border));
  if (!chat_template) {
    CHECK(!chat_template.error().message.empty());
    return 0;
  }
  const std::string_view context = border == std::string_view::npos ? "{}" : input.substr(border + 1);
  // A template may raise an empty message, so an error without text is a valid answer.
  static_cast<void>((*chat_template)->render(context, "2024-07-26T12:00:00"));
  return 0;
}
