// The border to the Rust text library: its errors and buffers as ours.
#pragma once

#include <quire_text.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

inline quire_text_span text_span(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Copies `buffer` and gives it back to the library.
std::string take_text(quire_text_buffer buffer);

// The library's error as ours; gives its buffers back.
std::unexpected<Error> take_error(const quire_text_error& error);

template <class Object, void (*free)(Object*)>
struct TextDeleter {
  void operator()(Object* object) const { free(object); }
};
using TokenizerHandle =
    std::unique_ptr<quire_text_tokenizer, TextDeleter<quire_text_tokenizer, quire_text_tokenizer_free>>;
using TemplateHandle =
    std::unique_ptr<quire_text_template, TextDeleter<quire_text_template, quire_text_template_free>>;

}  // namespace quire
