#include "files/field_reader.h"

namespace quire {
namespace {

constexpr size_t kPrintedBytesMax = 80;

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, kPrintedBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    } else {
      out.push_back(c);
    }
  }
  if (text.size() > kPrintedBytesMax) out += "...";
  return out;
}

std::string FieldName::text() const {
  std::string out = printable(owner);
  if (index) fmt::format_to(std::back_inserter(out), "[{}]", *index);
  if (!part.empty()) fmt::format_to(std::back_inserter(out), ".{}", part);
  if (part_index) fmt::format_to(std::back_inserter(out), "[{}]", *part_index);
  return out;
}

Result<std::span<const std::byte>> FieldReader::take(const FieldName& field, uint64_t length) {
  if (length > remaining()) return truncated(field, length);
  std::span<const std::byte> part = bytes_.subspan(offset_, length);
  offset_ += length;
  return part;
}

Result<std::string_view> FieldReader::text(const FieldName& field, uint64_t length_max) {
  const uint64_t at = offset_;
  const auto length = TRY(number<uint64_t>(field));
  if (length > length_max || length > remaining()) {
    const uint64_t left = remaining();
    offset_ = at;
    if (length > length_max)
      return corrupt(field, at, "string of {} bytes, the limit is {}", length, length_max);
    return corrupt(field, at, "string of {} bytes, the file has {} left", length, left);
  }
  const auto* data = reinterpret_cast<const char*>(bytes_.data() + offset_);
  offset_ += length;
  return std::string_view(data, length);
}

std::unexpected<Error> FieldReader::error(Fault fault, const FieldName& field,
                                          const std::string& text) const {
  std::string name = field.text();
  std::string message = fmt::format("{}: {} at byte {}: {}", file_, name, fault.at, text);
  return std::unexpected(Error{fault.code, std::move(message), std::move(name)});
}

std::unexpected<Error> FieldReader::truncated(const FieldName& field, uint64_t wanted) const {
  return corrupt(field, offset_, "the file ends at byte {}, {} more bytes are needed here", size(), wanted);
}

}  // namespace quire
