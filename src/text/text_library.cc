#include "text/text_library.h"

namespace quire {

std::string take_text(quire_text_buffer buffer) {
  std::string text(reinterpret_cast<const char*>(buffer.data), buffer.size);
  quire_text_buffer_free(buffer);
  return text;
}

std::unexpected<Error> take_error(const quire_text_error& error) {
  ErrorCode code = ErrorCode::kInternal;
  switch (error.code) {
    case QUIRE_TEXT_INVALID_ARGUMENT:
      code = ErrorCode::kInvalidArgument;
      break;
    case QUIRE_TEXT_UNSUPPORTED:
      code = ErrorCode::kUnsupported;
      break;
    case QUIRE_TEXT_CORRUPT:
      code = ErrorCode::kCorruptFile;
      break;
    case QUIRE_TEXT_RESOURCE:
      code = ErrorCode::kResourceExhausted;
      break;
    default:
      break;
  }
  std::string field = take_text(error.field);
  return std::unexpected(Error{code, take_text(error.message), std::move(field)});
}

}  // namespace quire
