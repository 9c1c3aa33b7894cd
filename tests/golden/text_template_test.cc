// Chat templates against prompts that Jinja2 rendered.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <iostream>
#include <map>
#include <sstream>

#include "engine/model_package.h"
#include "tests/golden/model_golden_data.h"
#include "tests/golden/text_golden_data.h"
#include "text/chat_template.h"

namespace quire::test {
namespace {

// Where minijinja and Jinja2 differ in ways that no hook of the engine reaches. docs/text.md explains each.
enum class KnownDifference { kNone, kMarkup, kNoneLoop };

// Jinja2's `x|safe + y` escapes y; the recorded prompt then holds entities that no template author meant.
std::string without_markup(std::string text) {
  const std::pair<std::string_view, std::string_view> entities[] = {
      {"&#34;", "\""}, {"&#39;", "'"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}};
  for (const auto& [entity, character] : entities) {
    for (size_t at = text.find(entity); at != std::string::npos; at = text.find(entity, at)) {
      text.replace(at, entity.size(), character);
    }
  }
  return text;
}

// Why a row that is not equal may differ.
KnownDifference known_difference(const boost::json::object& row, const std::string& source,
                                 const Result<std::string>& rendered) {
  if (row.contains("error")) {
    const bool none_loop = row.at("error").as_string() == "TypeError: 'NoneType' object is not iterable";
    return none_loop && rendered ? KnownDifference::kNoneLoop : KnownDifference::kNone;
  }
  const std::string expected(row.at("output").as_string());
  const bool marks_safe = source.find("safe") != std::string::npos;
  const bool markup = marks_safe && rendered && without_markup(expected) == *rendered;
  return markup ? KnownDifference::kMarkup : KnownDifference::kNone;
}

boost::json::object context_of(const boost::json::object& contexts, const boost::json::object& row) {
  boost::json::object context = contexts.at("base").as_object();
  for (const auto& [key, value] :
       contexts.at("contexts").as_object().at(row.at("context").as_string()).as_object()) {
    context[key] = value;
  }
  for (const char* name : {"tools", "documents"}) {
    if (!context.contains(name)) context[name] = nullptr;
  }
  return context;
}

struct Count {
  int equal = 0;
  int total = 0;
};

TEST(TemplateGoldens, AgreeWithJinja2) {
  const std::string folder = shared_path("chat-templates/");
  SKIP_WITHOUT(folder + "golden-jinja2.jsonl");
  const boost::json::object contexts =
      boost::json::parse(read_bytes(folder + "golden-contexts.json")).as_object();
  std::istringstream lines(read_bytes(folder + "golden-jinja2.jsonl"));
  Count outputs;
  Count errors;
  std::map<KnownDifference, int> differences;
  for (std::string line; std::getline(lines, line);) {
    const boost::json::object row = boost::json::parse(line).as_object();
    const std::string name =
        std::string(row.at("template").as_string()) + " " + row.at("context").as_string().c_str();
    const std::string source = read_bytes(folder + std::string(row.at("template").as_string()));
    const bool wants_output = row.contains("output");
    Count& count = wants_output ? outputs : errors;
    ++count.total;
    Result<std::string> rendered = std::unexpected(Error{});
    auto compiled = ChatTemplate::compile(source);
    if (compiled) {
      rendered =
          (*compiled)->render(boost::json::serialize(context_of(contexts, row)), "2024-07-26T12:00:00");
    } else {
      rendered = std::unexpected(compiled.error());
    }
    const bool equal = wants_output ? rendered && *rendered == row.at("output").as_string() : !rendered;
    count.equal += equal;
    if (equal) continue;
    const KnownDifference known = known_difference(row, source, rendered);
    ++differences[known];
    EXPECT_NE(known, KnownDifference::kNone)
        << name << "\nexpected: " << boost::json::serialize(row)
        << "\ngot: " << (rendered ? *rendered : rendered.error().message);
  }
  std::cout << "[ TEMPLATE ] outputs " << outputs.equal << "/" << outputs.total << ", errors " << errors.equal
            << "/" << errors.total << "; known differences: markup " << differences[KnownDifference::kMarkup]
            << ", loop over none " << differences[KnownDifference::kNoneLoop] << "\n";
  EXPECT_EQ(outputs.total, 399);
  EXPECT_EQ(errors.total, 28);
  EXPECT_LE(differences[KnownDifference::kMarkup], 9);
  EXPECT_LE(differences[KnownDifference::kNoneLoop], 10);
}

// The conversations of the model goldens, by the template of the model file itself.
TEST(TemplateGoldens, ChatPromptsOfTheModelsAreEqual) {
  Count prompts;
  for (const GoldenModel& model : golden_models()) {
    const std::string path = model_path(model.file);
    if (!file_exists(path)) continue;
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const auto chat_template = chat_template_of(*file);
    const auto tokenizer = tokenizer_of(*file);
    ASSERT_TRUE(chat_template.has_value()) << chat_template.error().message;
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
    std::istringstream lines(read_gzip(shared_path("goldens/" + model.folder + "/prompts.jsonl.gz")));
    for (std::string line; std::getline(lines, line);) {
      const boost::json::object prompt = boost::json::parse(line).as_object();
      if (!prompt.contains("messages")) continue;
      ASSERT_NE(*chat_template, nullptr) << path;
      const auto piece = [&](std::optional<TokenId> id) { return id ? (*tokenizer)->token_piece(*id) : ""; };
      const boost::json::object context = {{"messages", prompt.at("messages")},
                                           {"add_generation_prompt", true},
                                           {"bos_token", piece((*tokenizer)->bos())},
                                           {"eos_token", piece((*tokenizer)->eos())}};
      const auto rendered = (*chat_template)->render(boost::json::serialize(context));
      ASSERT_TRUE(rendered.has_value()) << rendered.error().message;
      EXPECT_EQ(*rendered, std::string_view(prompt.at("text").as_string())) << model.folder;
      prompts.equal += *rendered == std::string_view(prompt.at("text").as_string());
      ++prompts.total;
    }
  }
  // Templates come out of the model files, which lie outside the repository.
  if (prompts.total == 0) GTEST_SKIP() << "no model file is there: run tools/get_model all";
  std::cout << "[ TEMPLATE ] chat prompts of the models " << prompts.equal << "/" << prompts.total << "\n";
}

}  // namespace
}  // namespace quire::test
