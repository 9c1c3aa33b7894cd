#include "tests/golden/text_golden_data.h"

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace quire::test {

namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

bool file_exists(const std::string& path) {
  return std::filesystem::exists(path);
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

ConformancePair read_pair(const std::string& stem) {
  ConformancePair pair;
  const std::string input = read_bytes(stem + ".inp");
  const std::string separator = "\n__ggml_vocab_test__\n";
  size_t start = 0;
  for (size_t at = input.find(separator); at != std::string::npos; at = input.find(separator, start)) {
    pair.texts.push_back(input.substr(start, at - start));
    start = at + separator.size();
  }
  if (start < input.size()) pair.texts.push_back(input.substr(start));
  for (const std::string& line : split_lines(read_bytes(stem + ".out"))) {
    std::istringstream numbers(line);
    std::vector<TokenId> ids;
    for (TokenId id = 0; numbers >> id;) ids.push_back(id);
    pair.ids.push_back(ids);
  }
  return pair;
}

Result<std::unique_ptr<Tokenizer>> read_bpe_files(const std::string& encoder_json,
                                                  const std::string& vocab_bpe, std::string_view pre) {
  const boost::json::value encoder = boost::json::parse(read_bytes(encoder_json));
  const std::vector<std::string> lines = split_lines(read_bytes(vocab_bpe));
  TokenizerFields fields;
  fields.model = "gpt2";
  fields.pre = pre;
  fields.tokens.resize(encoder.as_object().size());
  for (const auto& [piece, id] : encoder.as_object()) fields.tokens.at(id.to_number<size_t>()) = piece;
  for (const std::string& line : lines) {
    if (!line.empty() && !line.starts_with("#version")) fields.merges.emplace_back(line);
  }
  return Tokenizer::from_fields(fields);
}

}  // namespace quire::test
