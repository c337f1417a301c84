// `penstock model`: Hugging Face's checkpoints to Penstock's layout and back.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/model/export_model.h"
#include "planner/cli/model/import_adapters.h"
#include "planner/cli/model/import_model.h"
#include "planner/cli/model/linear_layer_names.h"
#include "planner/cli/model/model_info.h"

namespace penstock::cli {
namespace {

struct ModelFlags {
  std::string from;
  std::string to;
  // 1e6 bytes.
  uint64_t most_file_mb = 5000;
  // Of adapters that are imported: the folder of their model.
  std::string base;
  bool merge = false;
};

constexpr uint64_t kBytesPerMb = 1'000'000;

absl::Status RunImportOfAdapters(const ModelFlags& flags) {
  if (flags.base.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("'", flags.from,
                     "' has adapters of PEFT: give --base, the folder that penstock model import made of ",
                     "the model that they are for"));
  PENSTOCK_ASSIGN_OR_RETURN(const ImportedAdapters imported,
                            ImportAdapters(flags.from, flags.base, flags.to));
  std::cout << "imported " << imported.tensors << " tensors, " << imported.bytes
            << " bytes, of adapters of rank " << imported.adapters.rank() << " at "
            << NamesOf(imported.adapters) << " to '" << flags.to << "'\n"
            << "train on: penstock up --init-from " << flags.to << " --dataset ...\n";
  return absl::OkStatus();
}

absl::Status RunImport(const ModelFlags& flags) {
  if (HasPeftAdapters(flags.from)) return RunImportOfAdapters(flags);
  if (!flags.base.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        "--base: '", flags.from, "' has no adapters of PEFT (adapter_config.json); leave it out"));
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
  const ExportOptions options = {.from = flags.from,
                                 .to = flags.to,
                                 .most_file_bytes = flags.most_file_mb * kBytesPerMb,
                                 .merge = flags.merge};
  PENSTOCK_ASSIGN_OR_RETURN(const ExportedModel exported, ExportModel(options));
  std::cout << "exported " << exported.tensors << " tensors, " << exported.bytes << " bytes, of iteration "
            << exported.next_iteration << " to '" << flags.to << "' (" << exported.files << " files)\n";
  if (exported.adapters)
    std::cout
        << "adapters alone: PEFT opens them beside their model; --merge writes the model that they make\n";
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

  CLI::App* import =
      commands.Add({.name = "import",
                    .purpose = "Makes a folder to train from of a Hugging Face checkpoint",
                    .examples = "penstock model import hf/llama models/llama\n"
                                "penstock model import peft/chat models/chat --base models/llama\n"
                                "penstock up --init-from models/llama --dataset data/mix"},
                   model);
  import->add_option("FROM", flags->from, "Folder with config.json and safetensors, or with adapters of PEFT")
      ->required();
  import->add_option("TO", flags->to, "Folder to make")->required();
  import->add_option("--base", flags->base,
                     "Where FROM has adapters of PEFT: the folder that this command made of their model");
  commands.OnRun(import, [flags] { return RunImport(*flags); });

  CLI::App* export_command =
      commands.Add({.name = "export",
                    .purpose = "Makes a Hugging Face checkpoint of the newest checkpoint of a run",
                    .examples = "penstock model export runs/mix hf/mix\n"
                                "penstock model export runs/adapted peft/adapted\n"
                                "penstock model export runs/adapted hf/merged --merge"},
                   model);
  export_command->add_option("FROM", flags->from, "Folder of a run, or of penstock model import")->required();
  export_command->add_option("TO", flags->to, "Folder to make")->required();
  export_command
      ->add_option("--file-mb", flags->most_file_mb,
                   "Size of a file above which there are several, 1e6 bytes")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000}))
      ->capture_default_str();
  export_command->add_flag(
      "--merge", flags->merge,
      "Of a run of adapters: the model that they make, in place of the adapters in PEFT's "
      "format");
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
