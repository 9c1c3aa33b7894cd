#include "cli/text_input.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace quire {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;

Result<std::string> read_all(std::FILE* file, const std::string& name) {
  std::string text;
  std::array<char, 65536> chunk;
  while (size_t count = std::fread(chunk.data(), 1, chunk.size(), file)) {
    if (text.size() + count > kTextBytesMax) {
      return fail(ErrorCode::kResourceExhausted, "file", "{} is larger than {} bytes, the limit for text",
                  name, kTextBytesMax);
    }
    text.append(chunk.data(), count);
  }
  if (std::ferror(file) != 0)
    return fail(ErrorCode::kIo, "file", "cannot read {}: {}", name, std::strerror(errno));
  return text;
}

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
  if (path == "-") return read_stdin();
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) {
    ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return fail(code, "file", "cannot open {}: {}", path, std::strerror(errno));
  }
  return read_all(file.get(), path);
}

Result<std::string> read_stdin() {
  return read_all(stdin, "stdin");
}

Result<std::string> read_text(const TextSource& source) {
  if (source.text) return *source.text;
  if (source.file) return read_text_file(*source.file);
  return fail(ErrorCode::kInvalidArgument, "--text",
              "a text is needed: --text TEXT or --file FILE ('-' is stdin)");
}

}  // namespace quire
