// quire cache: the folder of packed weights.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "engine/model_package.h"
#include "engine/packed_report.h"

namespace quire {
namespace {

namespace json = boost::json;

enum class CacheAction : uint8_t { kList, kVerify, kClear };

struct CacheArguments {
  std::optional<std::string> folder;
  CacheAction action = CacheAction::kList;
  OutputFormat format = OutputFormat::kText;
};

Result<int> clear(const std::string& folder, OutputFormat format) {
  const PackedRemoval removal = clear_packed_cache(folder);
  if (format == OutputFormat::kJson) {
    TRY(write_json(json::object{{"folder", folder},
                                {"files_removed", removal.files},
                                {"bytes_removed", removal.bytes},
                                {"files_in_use", removal.files_kept}}));
    return kExitOk;
  }
  std::string text =
      fmt::format("removed {} files, {}", removal.files, human_bytes(static_cast<double>(removal.bytes)));
  if (removal.files_kept > 0) text += fmt::format("; {} are in use", removal.files_kept);
  TRY(write_out(text + "\n"));
  return kExitOk;
}

json::object report_json(const PackedFileReport& report) {
  return {{"path", report.path},
          {"model", report.model},
          {"bytes", report.bytes},
          {"used_at", report.used_ns / 1'000'000'000},
          {"fault", report.fault.empty() ? json::value(nullptr) : json::value(report.fault)}};
}

std::string report_text(const PackedFileReport& report, CacheAction action) {
  const auto used = static_cast<std::time_t>(report.used_ns / 1'000'000'000);
  std::string state = report.fault;
  if (state.empty() && action == CacheAction::kVerify) state = "good";
  return fmt::format("{:>10}  {:%Y-%m-%d %H:%M}  {:<32} {} {}\n",
                     human_bytes(static_cast<double>(report.bytes)), fmt::localtime(used), report.model,
                     report.path, state);
}

Result<int> list(const std::string& folder, const CacheArguments& arguments) {
  const PackedCheck check =
      arguments.action == CacheAction::kVerify ? PackedCheck::kAll : PackedCheck::kHeaders;
  const std::vector<PackedFileReport> reports = report_packed_cache(folder, check);
  uint64_t bytes = 0;
  bool good = true;
  json::array files;
  std::string text;
  for (const PackedFileReport& report : reports) {
    bytes += report.bytes;
    good = good && report.fault.empty();
    files.push_back(report_json(report));
    text += report_text(report, arguments.action);
  }
  if (arguments.format == OutputFormat::kJson) {
    TRY(write_json(json::object{{"folder", folder}, {"bytes", bytes}, {"files", std::move(files)}}));
  } else {
    TRY(write_out(text + fmt::format("{}: {} files, {}\n", folder, reports.size(),
                                     human_bytes(static_cast<double>(bytes)))));
  }
  return good || arguments.action != CacheAction::kVerify ? kExitOk : kExitFault;
}

Result<int> cache(const CacheArguments& arguments) {
  const std::string folder = TRY(packed_cache_folder(arguments.folder));
  if (folder.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--packed-cache",
                "--packed-cache: the packed cache is off; name its folder");
  }
  if (arguments.action == CacheAction::kClear) return clear(folder, arguments.format);
  return list(folder, arguments);
}

}  // namespace

CommandBody declare_cache(CLI::App& app) {
  auto arguments = std::make_shared<CacheArguments>();
  set_footer(app, "Lists the files, longest unused first; those are the first to go when there is no room.");
  add_packed_cache(app, arguments->folder);
  add_flag(app, {"--verify", "Read every byte; status 1 when something is damaged"},
           [arguments] { arguments->action = CacheAction::kVerify; });
  add_flag(app, {"--clear", "Remove the files that no process uses"},
           [arguments] { arguments->action = CacheAction::kClear; });
  add_json(app, arguments->format);
  return [arguments] { return cache(*arguments); };
}

}  // namespace quire
