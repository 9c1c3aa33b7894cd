#include "cli/program.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace quire {
namespace {

struct Told {
  int status = 0;
  std::string out, err;
};

Told tell(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "quire");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Told told;
  told.status = run_program(static_cast<int>(arguments.size()), arguments.data());
  told.out = testing::internal::GetCapturedStdout();
  told.err = testing::internal::GetCapturedStderr();
  return told;
}

TEST(Program, EveryCommandHasHelpAndASummaryInTheList) {
  Told root = tell({"--help"});
  EXPECT_EQ(root.status, kExitOk);
  for (const Command& command : commands()) {
    EXPECT_NE(root.out.find(command.summary), std::string::npos) << command.name;
    Told help = tell({command.name, "--help"});
    EXPECT_EQ(help.status, kExitOk) << command.name;
    EXPECT_NE(help.out.find("Usage: quire " + std::string(command.name)), std::string::npos) << help.out;
  }
}

TEST(Program, SaysItsVersion) {
  Told told = tell({"--version"});
  EXPECT_EQ(told.status, kExitOk);
  EXPECT_TRUE(told.out.starts_with("quire ")) << told.out;
}

TEST(Program, WithoutACommandItHelpsAndFails) {
  Told told = tell({});
  EXPECT_EQ(told.status, kExitUsage);
  EXPECT_EQ(told.out, "");
  EXPECT_NE(told.err.find("perplexity"), std::string::npos);
}

TEST(Program, NamesUnknownCommandsAndOptions) {
  Told command = tell({"frobnicate"});
  EXPECT_EQ(command.status, kExitUsage);
  EXPECT_TRUE(command.err.starts_with("quire: unknown command 'frobnicate'")) << command.err;
  Told option = tell({"run", "model.gguf", "--top-q=3"});
  EXPECT_EQ(option.status, kExitUsage);
  EXPECT_TRUE(option.err.starts_with("quire: unknown option --top-q ")) << option.err;
}

TEST(Program, TellsFaultsAsJsonWhereAsked) {
  Told told = tell({"run", "model.gguf", "--top-p", "1.5", "--json"});
  EXPECT_EQ(told.status, kExitUsage);
  EXPECT_EQ(told.err, "quire: --top-p: 1.5 is out of range, must be (0, 1]\n");
  auto error = boost::json::parse(told.out).at("error");
  EXPECT_EQ(error.at("message").as_string(), "--top-p: 1.5 is out of range, must be (0, 1]");
  EXPECT_EQ(error.at("field").as_string(), "--top-p");
  EXPECT_EQ(error.at("code").as_string(), "invalid_argument");
}

TEST(Program, ExitStatusFollowsTheKindOfFault) {
  EXPECT_EQ(exit_status_of({ErrorCode::kInvalidArgument, "", ""}), kExitUsage);
  EXPECT_EQ(exit_status_of({ErrorCode::kCorruptFile, "", ""}), kExitFault);
  EXPECT_EQ(exit_status_of({ErrorCode::kNotFound, "", ""}), kExitFault);
}

TEST(Program, OptionsTakeNegativeNumbersAndTextsThatLookLikeOptions) {
  Told told =
      tell({"run", "/nonexistent/model.gguf", "--presence-penalty", "-1.5", "-p", "--help", "--stop", "-x"});
  EXPECT_EQ(told.status, kExitFault) << told.err;
  EXPECT_NE(told.err.find("/nonexistent/model.gguf"), std::string::npos) << told.err;
}

TEST(Program, ModesAreChecked) {
  EXPECT_EQ(tell({"run", "m", "hello"}).status, kExitUsage);
  EXPECT_EQ(tell({"run", "m", "chat", "-p", "x"}).status, kExitUsage);
  EXPECT_EQ(tell({"run", "m", "-p", "x", "--file", "y"}).status, kExitUsage);
  EXPECT_EQ(tell({"logits", "m"}).status, kExitUsage);
  EXPECT_EQ(tell({"bench"}).status, kExitUsage);
}

}  // namespace
}  // namespace quire
