// quire template: a chat template rendered over a context.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "engine/model_package.h"
#include "text/chat_template.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr size_t kContextDepthMax = 200;  // tool schemas nest deeply

struct TemplateArguments {
  std::string source;
  std::string context_file;
  std::optional<std::string> now;
  OutputFormat format = OutputFormat::kText;
};

struct LoadedTemplate {
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<Tokenizer> tokenizer;  // of a model; null for a template file
};

// "YYYY-MM-DDTHH:MM:SS": checked here, so that the fault names the option.
Result<void> check_now(const std::string& now) {
  static constexpr std::string_view kShape = "0000-00-00T00:00:00";
  bool good = now.size() == kShape.size();
  for (size_t i = 0; good && i < kShape.size(); ++i) {
    good = kShape[i] == '0' ? now[i] >= '0' && now[i] <= '9' : now[i] == kShape[i];
  }
  if (!good) {
    return fail(ErrorCode::kInvalidArgument, "--now", "--now: '{}' is not of the form 2024-07-26T12:00:00",
                now);
  }
  return {};
}

Result<json::object> read_context(const std::string& path) {
  std::string text = TRY(read_text_file(path));
  json::error_code fault;
  json::parse_options options;
  options.max_depth = kContextDepthMax;
  json::value value = json::parse(text, fault, {}, options);
  if (fault)
    return fail(ErrorCode::kInvalidArgument, "--context", "--context: {} is not JSON: {}", path,
                fault.message());
  if (!value.is_object()) {
    return fail(ErrorCode::kInvalidArgument, "--context", "--context: {} is not a JSON object", path);
  }
  return std::move(value.get_object());
}

Result<LoadedTemplate> load_template(const std::string& source) {
  for (std::string_view ending : {".jinja", ".jinja2", ".j2"}) {
    if (source.ends_with(ending)) return LoadedTemplate {
        TRY(ChatTemplate::compile(TRY(read_text_file(source))))
        , nullptr
      };
  }
  std::string path = TRY(resolve_model(source));
  GgufFile file = TRY(GgufFile::open(path));
  LoadedTemplate loaded {
    TRY(chat_template_of(file))
    , TRY(tokenizer_of(file))
  };
  if (loaded.chat_template == nullptr) {
    return fail(ErrorCode::kNotFound, "tokenizer.chat_template", "{} has no chat template", path);
  }
  return loaded;
}

// What the context leaves out: absent tools and documents are null, the tokens are the model's.
void complete(json::object& context, const Tokenizer* tokenizer) {
  context.emplace("tools", nullptr);
  context.emplace("documents", nullptr);
  if (tokenizer == nullptr) return;
  if (auto bos = tokenizer->bos()) context.emplace("bos_token", tokenizer->token_piece(*bos));
  if (auto eos = tokenizer->eos()) context.emplace("eos_token", tokenizer->token_piece(*eos));
}

Result<int> render(const TemplateArguments& arguments) {
  if (arguments.now) TRY(check_now(*arguments.now));
  json::object context = TRY(read_context(arguments.context_file));
  LoadedTemplate loaded = TRY(load_template(arguments.source));
  complete(context, loaded.tokenizer.get());
  std::string text = TRY(render_messages(*loaded.chat_template, to_json(context), arguments.now));
  if (arguments.format == OutputFormat::kJson) {
    TRY(write_json(json::object{{"text", text}}));
  } else {
    TRY(write_out(text));
  }
  return kExitOk;
}

}  // namespace

CommandBody declare_template(CLI::App& app) {
  auto arguments = std::make_shared<TemplateArguments>();
  set_footer(
      app,
      "The context holds messages, tools, documents, add_generation_prompt, bos_token, eos_token and any\n"
      "further variables. Text is printed as it is, without a line end. JSON: {\"text\": …}.");
  add_required_text(app, {"source", "A model, or a template file (.jinja, .jinja2, .j2)", "MODEL|FILE.jinja"},
                    arguments->source);
  add_required_text(app, {"--context", "A JSON file; '-' is stdin", "FILE"}, arguments->context_file);
  add_text(app, {"--now", "The time that strftime_now sees: 2024-07-26T12:00:00 (default: now)", "TIME"},
           arguments->now);
  add_json(app, arguments->format);
  return [arguments] { return render(*arguments); };
}

}  // namespace quire
