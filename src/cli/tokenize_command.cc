// quire tokenize: a text as the model sees it.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "engine/model_package.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

namespace json = boost::json;

enum class Specials { kAsPrompt, kNone };

struct TokenizeArguments {
  std::string model;
  std::optional<std::string> text, file;
  Specials specials = Specials::kAsPrompt;
  OutputFormat format = OutputFormat::kText;
};

Result<std::vector<TokenId>> encode(const TokenizeArguments& arguments, const Tokenizer& tokenizer) {
  std::string text = TRY(read_text({arguments.text, arguments.file}));
  if (arguments.specials == Specials::kNone) return tokenizer.encode(text, SpecialTokens::kAsText);
  return tokenizer.encode_prompt(text, SpecialTokens::kParse);
}

Result<int> tokenize(const TokenizeArguments& arguments) {
  if (!arguments.text && !arguments.file) TRY(read_text({}));
  std::unique_ptr<Tokenizer> tokenizer = TRY(open_tokenizer(TRY(resolve_model(arguments.model))));
  std::vector<TokenId> ids = TRY(encode(arguments, *tokenizer));
  if (arguments.format == OutputFormat::kJson) {
    json::array numbers(ids.begin(), ids.end());
    json::array pieces;
    for (TokenId id : ids) pieces.emplace_back(tokenizer->token_piece(id));
    json::object result;
    result["ids"] = std::move(numbers);
    result["pieces"] = std::move(pieces);
    TRY(write_json(result));
    return kExitOk;
  }
  std::string table = fmt::format("{:>8}  {}\n", "id", "piece");
  for (TokenId id : ids) table += fmt::format("{:>8}  {}\n", id, tokenizer->token_piece(id));
  TRY(write_out(table));
  return kExitOk;
}

}  // namespace

CommandBody declare_tokenize(CLI::App& app) {
  auto arguments = std::make_shared<TokenizeArguments>();
  set_footer(app,
             "As a prompt: BOS and EOS are added where the model wants them, and special tokens written in "
             "the text\n"
             "are read as such. JSON: {\"ids\": […], \"pieces\": […]}.");
  add_required_text(
      app,
      {"model",
       "A GGUF file (one with a vocabulary alone will do), a tokenizer.json, a Hugging Face folder, or a "
       "name in the cache",
       "MODEL"},
      arguments->model);
  CLI::Option* text = add_text(app, {"--text,text", "The text"}, arguments->text);
  exclude(add_text(app, {"--file", "A file, as it is; '-' is stdin", "FILE"}, arguments->file), text);
  add_flag(app,
           {"--no-specials", "Add no BOS or EOS, and read special tokens in the text as ordinary characters"},
           [arguments] { arguments->specials = Specials::kNone; });
  add_json(app, arguments->format);
  return [arguments] { return tokenize(*arguments); };
}

}  // namespace quire
