#include "text/utf8_text.h"

#include <cstdint>

namespace quire {

namespace {

// What a first byte announces: the length of the sequence and the range of its second byte (Unicode 15, table
// 3-7), which excludes overlong forms, surrogates and code points above U+10FFFF.
struct Lead {
  int length = 0;  // 0: no first byte
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2 || byte > 0xF4) return {0};
  if (byte < 0xE0) return {2};
  if (byte < 0xF0) return {3, uint8_t(byte == 0xE0 ? 0xA0 : 0x80), uint8_t(byte == 0xED ? 0x9F : 0xBF)};
  return {4, uint8_t(byte == 0xF0 ? 0x90 : 0x80), uint8_t(byte == 0xF4 ? 0x8F : 0xBF)};
}

}  // namespace

void move_decided_utf8(std::string& bytes, std::string& text) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Lead lead = lead_of(static_cast<uint8_t>(bytes[at]));
    int good = lead.length == 0 ? 0 : 1;
    while (good > 0 && good < lead.length && at + good < bytes.size()) {
      const auto next = static_cast<uint8_t>(bytes[at + good]);
      const bool fits =
          good == 1 ? next >= lead.second_min && next <= lead.second_max : (next & 0xC0) == 0x80;
      if (!fits) break;
      ++good;
    }
    if (lead.length != 0 && good == lead.length) {
      text.append(bytes, at, good);
      at += good;
    } else if (good > 0 && at + good == bytes.size()) {
      break;
    } else {
      text.append(kReplacementCharacter);
      at += good == 0 ? 1 : good;
    }
  }
  bytes.erase(0, at);
}

}  // namespace quire
