#include "text/chat_template.h"

#include <gtest/gtest.h>
#include <time.h>

#include <thread>
#include <vector>

namespace quire::test {
namespace {

Result<std::string> rendered(std::string_view source, std::string_view context) {
  const auto compiled = ChatTemplate::compile(source);
  if (!compiled) return std::unexpected(compiled.error());
  return (*compiled)->render(context, "2024-07-26T12:00:00");
}

TEST(ChatTemplate, RendersAConversation) {
  const auto text = rendered(
      "{{ bos_token }}{% for m in messages %}\n"
      "<|{{ m.role }}|>{{ m['content'] | trim }}\n"
      "{% endfor %}\n"
      "{%- if add_generation_prompt %}<|assistant|>{% endif %}\n",
      R"({"bos_token": "<s>", "add_generation_prompt": true,
          "messages": [{"role": "user", "content": " Grüße <b> "}, {"role": "assistant", "content": "ok"}]})");
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(*text, "<s><|user|>Grüße <b>\n<|assistant|>ok\n<|assistant|>");
}

TEST(ChatTemplate, ErrorsTellLineAndCause) {
  const auto syntax = ChatTemplate::compile("a\nb {% for %}");
  ASSERT_FALSE(syntax.has_value());
  EXPECT_EQ(syntax.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(syntax.error().field, "template");
  EXPECT_NE(syntax.error().message.find("line 2"), std::string::npos) << syntax.error().message;
  EXPECT_NE(syntax.error().message.find("{% for %}"), std::string::npos) << syntax.error().message;

  const auto raised = rendered("{{ raise_exception('roles must alternate') }}", "{}");
  ASSERT_FALSE(raised.has_value());
  EXPECT_EQ(raised.error().message, "roles must alternate");
  EXPECT_EQ(raised.error().code, ErrorCode::kInvalidArgument);

  const auto unknown = rendered("x\n{{ messages.nothing.at_all }}", R"({"messages": {}})");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("line 2"), std::string::npos) << unknown.error().message;
}

TEST(ChatTemplate, BadContextsAndClocksAreRefused) {
  EXPECT_EQ(rendered("x", "[1]").error().field, "context");
  EXPECT_EQ(rendered("x", "{\"a\": ").error().field, "context");
  const auto compiled = ChatTemplate::compile("x");
  ASSERT_TRUE(compiled.has_value());
  EXPECT_EQ((*compiled)->render("{}", "tomorrow").error().field, "now");
  EXPECT_FALSE(ChatTemplate::compile("\xFF").has_value());
  EXPECT_EQ((*compiled)->source(), "x");
}

TEST(ChatTemplate, RunAwayTemplatesEndWithAnError) {
  const auto loops =
      rendered("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{}");
  ASSERT_FALSE(loops.has_value());
  EXPECT_EQ(loops.error().code, ErrorCode::kResourceExhausted) << loops.error().message;
  EXPECT_FALSE(rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}").has_value());
  const std::string grows =
      "{% set ns = namespace(x='0123456789') %}{% for i in range(64) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}";
  EXPECT_FALSE(rendered(grows, "{}").has_value());
}

TEST(ChatTemplate, WithoutAGivenTimeTheLocalDateIsUsed) {
  const auto compiled = ChatTemplate::compile("{{ strftime_now('%Y-%m-%d') }}");
  ASSERT_TRUE(compiled.has_value());
  const auto today = [] {
    const time_t now = time(nullptr);
    tm parts{};
    localtime_r(&now, &parts);
    char text[16];
    strftime(text, sizeof text, "%Y-%m-%d", &parts);
    return std::string(text);
  };
  const std::string before = today();
  const auto text = (*compiled)->render("{}");
  ASSERT_TRUE(text.has_value());
  EXPECT_TRUE(*text == before || *text == today()) << *text;
}

TEST(ChatTemplate, ThreadsShareOne) {
  const auto compiled = ChatTemplate::compile("{% for i in range(100) %}{{ n }}{% endfor %}");
  ASSERT_TRUE(compiled.has_value());
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        texts[i] = (*compiled)->render("{\"n\": " + std::to_string(i) + "}").value_or("failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::string(100, static_cast<char>('0' + i)));
}

}  // namespace
}  // namespace quire::test
