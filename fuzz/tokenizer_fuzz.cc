// Fuzzes tokenizer.json: what is accepted also encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

constexpr std::string_view kTexts[] = {"", " the\n\nend", "caf\xc3\xa9 \xf0\x9f\x98\x80 <s>",
                                       "\xff\xfe\x00 1234"};

void use(const Tokenizer& tokenizer) {
  CHECK(tokenizer.vocab_size() >= 0);
  for (TokenId id = 0; id < tokenizer.vocab_size() && id < 100; ++id) {
    CHECK(tokenizer.token_bytes(id).size() < (size_t{1} << 30));
    CHECK(tokenizer.token_piece(id).size() < (size_t{1} << 30));
    static_cast<void>(tokenizer.token_kind(id));
  }
  for (std::string_view text : kTexts) {
    for (SpecialTokens specials : {SpecialTokens::kParse, SpecialTokens::kAsText}) {
      const auto ids = tokenizer.encode_prompt(text, specials);
      if (!ids) continue;
      for (TokenId id : *ids) CHECK(id >= 0 && id < tokenizer.vocab_size());
      static_cast<void>(tokenizer.decode(*ids));
    }
  }
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tokenizer = quire::Tokenizer::from_json({reinterpret_cast<const char*>(data), size});
  if (!tokenizer) {
    CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  quire::use(**tokenizer);
  return 0;
}
