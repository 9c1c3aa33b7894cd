#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "text/small_vocabulary.h"
#include "text/utf8_text.h"

namespace quire::test {
namespace {

constexpr TokenId kFirstByte = 3;

// Whether `bytes` begins a well-formed sequence of UTF-8, by trying to complete it in every way: slow and
// obvious.
bool encodes_code_point(const std::string& bytes) {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> encoded;
    for (uint32_t c = 0x80; c <= 0x10FFFF; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      std::string s;
      if (c < 0x800) {
        s = {char(0xC0 | c >> 6), char(0x80 | (c & 63))};
      } else if (c < 0x10000) {
        s = {char(0xE0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
      } else {
        s = {char(0xF0 | c >> 18), char(0x80 | (c >> 12 & 63)), char(0x80 | (c >> 6 & 63)),
             char(0x80 | (c & 63))};
      }
      encoded.push_back(s);
    }
    return encoded;  // ascending, as UTF-8 keeps the order of code points
  }();
  const auto unsigned_less = [](const std::string& a, const std::string& b) { return a.compare(b) < 0; };
  const auto found = std::lower_bound(all.begin(), all.end(), bytes, unsigned_less);
  return found != all.end() && found->starts_with(bytes);
}

bool whole_code_point(const std::string& bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return bytes.size() == length && (lead < 0x80 || encodes_code_point(bytes));
}

struct Decoded {
  std::string text;
  std::string pending;
};

// The decided text of `bytes`, and what may still become a code point.
Decoded decode_naively(const std::string& bytes) {
  Decoded decoded;
  for (char byte : bytes) {
    std::string longer = decoded.pending + byte;
    const bool may_begin =
        static_cast<uint8_t>(longer[0]) < 0x80 ? longer.size() == 1 : encodes_code_point(longer);
    if (!may_begin && !decoded.pending.empty()) {
      decoded.text += kReplacementCharacter;
      longer = std::string(1, byte);
    }
    const bool begins = static_cast<uint8_t>(longer[0]) < 0x80 || encodes_code_point(longer);
    decoded.pending.clear();
    if (!begins) {
      decoded.text += kReplacementCharacter;
    } else if (whole_code_point(longer)) {
      decoded.text += longer;
    } else {
      decoded.pending = longer;
    }
  }
  return decoded;
}

// Where the text ends because of a stop string: the first end, of several stops the longest.
std::optional<size_t> stop_at(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return end - longest;
  }
  return std::nullopt;
}

// What may be shown of `text`: all but the longest end that begins a stop string.
std::string certain_part(const std::string& text, const std::vector<std::string>& stops) {
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t length = 1; length < stop.size() && length <= text.size(); ++length) {
      if (text.ends_with(stop.substr(0, length))) held = std::max(held, length);
    }
  }
  return text.substr(0, text.size() - held);
}

std::string random_bytes(std::mt19937& random) {
  const std::vector<std::string> parts = {"a",    "b",        "ab",   " ",        "é",        "日",
                                          "😀",   "\xF0\x9F", "\xE6", "\xC3\x28", "\xED\xA0", "\n",
                                          "stop", "\x80",     "\xFF", "\xF4\x90", "\xC0"};
  std::string bytes;
  for (size_t count = random() % 12; count > 0; --count) bytes += parts[random() % parts.size()];
  return bytes;
}

TEST(Detokenizer, AgreesWithANaiveOracleForAnyCutAndAnyStops) {
  std::mt19937 random(1);
  const std::vector<std::string> stop_parts = {"a",    "b", "ab", "aba",    "stop", "é",
                                               "日😀", " ", "\n", "\uFFFD", "top"};
  for (const bool prefix : {false, true}) {
    SmallVocabulary vocabulary = sentence_vocabulary({});
    vocabulary.extra.add_space_prefix = prefix;
    const auto tokenizer = vocabulary.build();
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    for (int round = 0; round < 3000; ++round) {
      std::vector<std::string> stops;
      for (size_t count = random() % 4; count > 0; --count) {
        stops.push_back(stop_parts[random() % stop_parts.size()]);
        if (random() % 3 == 0) stops.back() += stop_parts[random() % stop_parts.size()];
      }
      const std::string bytes = random_bytes(random);
      Detokenizer detokenizer(**tokenizer, stops);
      std::string shown;
      std::string seen;
      for (const char byte : bytes) {
        shown += detokenizer.push(kFirstByte + static_cast<uint8_t>(byte));
        if (random() % 5 == 0) shown += detokenizer.push(1);  // a control token yields nothing
        seen += byte;
        const std::string stripped = prefix && seen.starts_with(' ') ? seen.substr(1) : seen;
        const std::string text = decode_naively(stripped).text;
        const auto stop = stop_at(text, stops);
        ASSERT_EQ(shown, stop ? text.substr(0, *stop) : certain_part(text, stops));
        ASSERT_EQ(detokenizer.stopped(), stop.has_value());
      }
      shown += detokenizer.finish();
      const Decoded all = decode_naively(prefix && bytes.starts_with(' ') ? bytes.substr(1) : bytes);
      const std::string text = all.text + std::string(all.pending.empty() ? "" : kReplacementCharacter);
      const auto stop = stop_at(text, stops);
      ASSERT_EQ(shown, stop ? text.substr(0, *stop) : text);
    }
  }
}

TEST(Detokenizer, TokensOfManyBytesGiveTheSameAsSingleBytes) {
  std::mt19937 random(2);
  const std::vector<std::string> pieces = {"stop", "▁st", "op", "日", "o", "▁", "éa"};
  const auto tokenizer = sentence_vocabulary(pieces).build();
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  for (int round = 0; round < 2000; ++round) {
    const std::vector<std::string> stops = {"stop", "日o", "op st"};
    Detokenizer whole(**tokenizer, stops);
    Detokenizer bytewise(**tokenizer, stops);
    std::string a;
    std::string b;
    for (size_t count = random() % 9; count > 0; --count) {
      const auto id = static_cast<TokenId>(kFirstByte + 256 + random() % pieces.size());
      a += whole.push(id);
      for (const char byte : (*tokenizer)->token_bytes(id))
        b += bytewise.push(kFirstByte + static_cast<uint8_t>(byte));
    }
    ASSERT_EQ(a + whole.finish(), b + bytewise.finish());
    ASSERT_EQ(whole.stopped(), bytewise.stopped());
  }
}

TEST(Detokenizer, AContinuationKeepsItsBlank) {
  const auto tokenizer = sentence_vocabulary({"▁a"}).build();
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const TokenId blank_a = kFirstByte + 256;
  Detokenizer fresh(**tokenizer, {});
  Detokenizer continued(**tokenizer, {""}, TextPosition::kContinuation);
  EXPECT_EQ(fresh.push(1) + fresh.push(blank_a) + fresh.push(blank_a), "a a");
  EXPECT_EQ(continued.push(blank_a) + continued.push(blank_a), " a a");
  EXPECT_EQ((*tokenizer)->decode(std::vector<TokenId>{1, blank_a, 2}), "a");
  EXPECT_EQ((*tokenizer)->decode(std::vector<TokenId>{-1, 9999, blank_a}), "a");
}

}  // namespace
}  // namespace quire::test
