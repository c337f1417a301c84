// `penstock model`: Hugging Face's checkpoints to Penstock's layout and back.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/model/export_model.h"
#include "planner/cli/model/import_model.h"
#include "planner/cli/model/model_info.h"

namespace penstock::cli {
namespace {

struct ModelFlags {
  std::string from;
  std::string to;
  // 1e6 bytes.
  uint64_t most_file_mb = 5000;
};

constexpr uint64_t kBytesPerMb = 1'000'000;

absl::Status RunImport(const ModelFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const ImportedModel imported, ImportModel(flags.from, flags.to));
  std::cout << "imported " << imported.tensors << " tensors, " << imported.bytes << " bytes, of a "
            << imported.model.family << " to '" << flags.to << "'\n";
  if (!imported.files.kept.empty())
    std::cout << "kept for the export: " << absl::StrJoin(imported.files.kept, ", ") << "\n";
  if (!imported.files.left_out.empty())
    std::cout << "note: too large to keep: " << absl::StrJoin(imported.files.left_out, ", ") << "\n";
  if (!imported.model.dropout.empty()) {
    std::cout << "note: " << imported.model.dropout << ": Penstock trains without dropout\n";
  }
  std::cout << "train it: penstock up --init-from " << flags.to << " --dataset ...\n";
  return absl::OkStatus();
}

absl::Status RunExport(const ModelFlags& flags) {
  const ExportOptions options = {
      .from = flags.from, .to = flags.to, .most_file_bytes = flags.most_file_mb * kBytesPerMb};
  PENSTOCK_ASSIGN_OR_RETURN(const ExportedModel exported, ExportModel(options));
  std::cout << "exported " << exported.tensors << " tensors, " << exported.bytes << " bytes, of iteration "
            << exported.next_iteration << " to '" << flags.to << "' (" << exported.files << " files)\n";
  if (!exported.kept_files.empty())
    std::cout << "as they came: " << absl::StrJoin(exported.kept_files, ", ") << "\n";
  for (const std::string& change : exported.config_changes) std::cout << "config.json: " << change << "\n";
  return absl::OkStatus();
}

absl::Status RunInfo(const ModelFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const ModelInfo info, InfoOf(flags.from));
  constexpr size_t kColumn = 18;
  for (auto [what, value] : Describe(info)) {
    what.resize(std::max(kColumn, what.size() + 1), ' ');
    std::cout << what << value << "\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddModelCommands(CommandSet& commands) {
  CLI::App* model = commands.Add(
      {.name = "model", .purpose = "Imports, exports and shows models in Hugging Face's format"});
  model->require_subcommand(1);
  auto flags = std::make_shared<ModelFlags>();

  CLI::App* import = commands.Add({.name = "import",
                                   .purpose = "Makes a folder to train from of a Hugging Face checkpoint",
                                   .examples = "penstock model import hf/llama models/llama\n"
                                               "penstock up --init-from models/llama --dataset data/mix"},
                                  model);
  import->add_option("FROM", flags->from, "Folder with config.json and safetensors")->required();
  import->add_option("TO", flags->to, "Folder to make")->required();
  commands.OnRun(import, [flags] { return RunImport(*flags); });

  CLI::App* export_command =
      commands.Add({.name = "export",
                    .purpose = "Makes a Hugging Face checkpoint of the newest checkpoint of a run",
                    .examples = "penstock model export runs/mix hf/mix"},
                   model);
  export_command->add_option("FROM", flags->from, "Folder of a run, or of penstock model import")->required();
  export_command->add_option("TO", flags->to, "Folder to make")->required();
  export_command
      ->add_option("--file-mb", flags->most_file_mb,
                   "Size of a file above which there are several, 1e6 bytes")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000}))
      ->capture_default_str();
  commands.OnRun(export_command, [flags] { return RunExport(*flags); });

  CLI::App* info = commands.Add({.name = "info",
                                 .purpose = "Shows what a model is made of",
                                 .examples = "penstock model info hf/llama\n"
                                             "penstock model info runs/mix"},
                                model);
  info->add_option("FROM", flags->from,
                   "Folder of Hugging Face's, its config.json, or a folder of Penstock's")
      ->required();
  commands.OnRun(info, [flags] { return RunInfo(*flags); });
}

}  // namespace penstock::cli
