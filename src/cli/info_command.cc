// quire info: a model file, or this machine.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "core/kv_geometry.h"
#include "engine/machine.h"
#include "engine/model_package.h"

namespace quire {
namespace {

namespace json = boost::json;

enum class Subject { kModel, kMachine };

struct InfoArguments {
  std::string model;
  std::string kv_type = "f16";
  Subject subject = Subject::kModel;
  OutputFormat format = OutputFormat::kText;
};

Result<int> machine(OutputFormat format) {
  MachineInfo info = describe_machine();
  if (format == OutputFormat::kJson) {
    json::object result;
    result["version"] = QUIRE_VERSION;
    result["cpu"] = info.cpu;
    result["usable_cpus"] = info.usable_cpus;
    result["isas"] = json::array(info.isas.begin(), info.isas.end());
    result["default_isa"] = info.default_isa;
    TRY(write_json(result));
    return kExitOk;
  }
  std::string isas;
  for (const std::string& isa : info.isas) isas += (isas.empty() ? "" : ", ") + isa;
  TRY(
      write_out(fmt::format("quire          {}\nCPU            {}\nusable CPUs    {}\nISAs           {} ("
                            "default: {})\n",
                            QUIRE_VERSION, info.cpu, info.usable_cpus, isas, info.default_isa)));
  return kExitOk;
}

json::object package_json(const PackageInfo& info, const std::string& kv_type) {
  json::object result;
  result["path"] = info.path;
  result["gguf_version"] = info.gguf_version;
  result["file_bytes"] = info.file_bytes;
  result["architecture"] = info.architecture;
  result["name"] = info.name;
  result["layers"] = info.layers;
  result["width"] = info.width;
  result["vocab_size"] = info.vocab_size;
  result["context_length"] = info.context_length;
  result["parameters"] = info.parameters;
  result["tokenizer"] = info.tokenizer;
  result["chat_template"] = info.chat_template ? json::value(*info.chat_template) : json::value(nullptr);
  json::array types;
  for (const TensorTypeCount& type : info.tensor_types) {
    types.push_back(json::object{{"type", type.type}, {"tensors", type.tensors}, {"bytes", type.bytes}});
  }
  result["tensor_types"] = std::move(types);
  result["memory"] = json::object{{"weight_bytes", info.packed_weight_bytes},
                                  {"kv_type", kv_type},
                                  {"kv_bytes_per_token", info.kv_bytes_per_token},
                                  {"kv_bytes_full_context", info.kv_bytes_full_context}};
  return result;
}

std::string package_text(const PackageInfo& info, const std::string& kv_type) {
  std::string text;
  auto row = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<16} {}\n", name, value);
  };
  auto bytes = [](uint64_t count) { return human_bytes(static_cast<double>(count)); };
  row("file", fmt::format("{} ({}, GGUF v{})", info.path, bytes(info.file_bytes), info.gguf_version));
  row("model", fmt::format("{} ({})", info.name.empty() ? "unnamed" : info.name, info.architecture));
  row("parameters", fmt::format("{:.1f} M", static_cast<double>(info.parameters) * 1e-6));
  row("shape", fmt::format("{} layers of width {}", info.layers, info.width));
  row("context", fmt::format("{} tokens", info.context_length));
  row("vocabulary", fmt::format("{} tokens ({})", info.vocab_size, info.tokenizer));
  row("chat template", info.chat_template ? fmt::format("{} bytes", info.chat_template->size()) : "none");
  for (const TensorTypeCount& type : info.tensor_types) {
    row(&type == info.tensor_types.data() ? "tensors" : "",
        fmt::format("{:<6} {:>5}  {:>10}", type.type, type.tensors, bytes(type.bytes)));
  }
  row("memory",
      fmt::format("weights {}, KV ({}) {} a token, {} for the whole context", bytes(info.packed_weight_bytes),
                  kv_type, bytes(info.kv_bytes_per_token), bytes(info.kv_bytes_full_context)));
  return text;
}

Result<int> info(const InfoArguments& arguments) {
  if (arguments.model.empty() || arguments.subject == Subject::kMachine) return machine(arguments.format);
  PackageInfo info = TRY(describe_package(TRY(resolve_model(arguments.model)), arguments.kv_type));
  if (arguments.format == OutputFormat::kJson) {
    TRY(write_json(package_json(info, arguments.kv_type)));
  } else {
    TRY(write_out(package_text(info, arguments.kv_type)));
  }
  return kExitOk;
}

}  // namespace

CommandBody declare_info(CLI::App& app) {
  auto arguments = std::make_shared<InfoArguments>();
  set_footer(app, "Without MODEL: the machine, its usable CPUs and instruction sets.");
  add_text(app, {"model", "A GGUF file, or the name of a model in the cache", "MODEL"}, arguments->model);
  add_text(app, {"--kv-type", "For the memory plan: " + kv_type_names(), "TYPE"}, arguments->kv_type);
  add_flag(app, {"--isas", "Describe the machine"}, [arguments] { arguments->subject = Subject::kMachine; });
  add_json(app, arguments->format);
  return [arguments] { return info(*arguments); };
}

}  // namespace quire
