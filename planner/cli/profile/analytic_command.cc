#include "planner/cli/profile/analytic_command.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/profile/measured_model.h"
#include "planner/cli/profile_file.h"
#include "planner/core/cost/accelerator_profile.h"

namespace penstock::cli {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

struct AnalyticFlags {
  std::string model;
  uint32_t max_length = 0;
  std::vector<uint32_t> dense_layers;
  uint32_t dense_ffn = 0;
  double teraflops = 200;
  double half_efficiency_tokens = 512;
  double memory_gb = 80;
  uint32_t gpus_per_node = 8;
  double intra_node_gb_per_second = 600;
  double inter_node_gb_per_second = 100;
  double copy_gb_per_second = 900;
  std::string out;
};

core::Accelerator AcceleratorOf(const AnalyticFlags& flags) {
  return {.flops = flags.teraflops * kTera,
          .half_efficiency_tokens = flags.half_efficiency_tokens,
          .memory_bytes = std::llround(flags.memory_gb * kGiga),
          .gpus_per_node = flags.gpus_per_node,
          .intra_node_bytes_per_second = flags.intra_node_gb_per_second * kGiga,
          .inter_node_bytes_per_second = flags.inter_node_gb_per_second * kGiga,
          .copy_bytes_per_second = flags.copy_gb_per_second * kGiga};
}

absl::Status RunAnalytic(const AnalyticFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::ModelSpec model, ReadMeasuredModel(flags.model, flags.max_length));
  if (flags.dense_ffn > 0 && flags.dense_layers.empty())
    return absl::InvalidArgumentError("--dense-ffn: of the layers of --dense-layers; give those");
  if (!flags.dense_layers.empty()) {
    const std::set<uint32_t> dense(flags.dense_layers.begin(), flags.dense_layers.end());
    model.mutable_dense_layers()->Assign(dense.begin(), dense.end());
    model.set_dense_ffn(flags.dense_ffn);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ProfileFile file,
                            core::AcceleratorProfile(model, AcceleratorOf(flags)));
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(WriteProfileFile(file, flags.out), "--out"));
  PrintOut(absl::StrCat("cost profile: ", flags.out, "\n", file.profile().comment(),
                        "\n`penstock profile show ", flags.out, "` says what is in it.\n"));
  return absl::OkStatus();
}

}  // namespace

void AddAnalyticCommand(CommandSet& commands, CLI::App* profile) {
  const auto flags = std::make_shared<AnalyticFlags>();
  CLI::App* analytic = commands.Add(
      {.name = "analytic",
       .purpose = "What a model would cost on accelerators of which a few figures are known, by formulas",
       .examples = "penstock profile analytic --model hf/qwen3_moe/config.json --out qwen3.json\n"
                   "penstock profile analytic --model examples/qwen3_30b_a3b.json --dense-layers 1 "
                   "--dense-ffn 6144 --teraflops 400 --memory-gb 141 --out dense_first.json"},
      profile);
  analytic
      ->add_option(
          "--model", flags->model,
          "A folder with a model (a run, an imported one), a config.json of Hugging Face's, or a cost "
          "profile, whose model is taken")
      ->required();
  analytic->add_option("--max-length", flags->max_length,
                       "Tokens of the longest sample (default: the model's longest)");
  analytic
      ->add_option("--dense-layers", flags->dense_layers,
                   "Of a model with experts: layers that have none, counted from 1 (1,3,5), instead of the "
                   "model's own")
      ->delimiter(',');
  analytic->add_option("--dense-ffn", flags->dense_ffn,
                       "Inner width of the layers of --dense-layers (default: that of an expert)");
  const auto figure = [&](const char* flag, double& value, const char* what) {
    analytic->add_option(flag, value, what)->check(CLI::PositiveNumber)->capture_default_str();
  };
  figure("--teraflops", flags->teraflops, "Of large products, 1e12 a second");
  figure("--half-efficiency-tokens", flags->half_efficiency_tokens,
         "Tokens at which products have half of that speed");
  figure("--memory-gb", flags->memory_gb, "Memory of an accelerator, 1e9 bytes");
  analytic->add_option("--gpus-per-node", flags->gpus_per_node, "Accelerators of a node")
      ->check(CLI::Range(1U, 1U << 16))
      ->capture_default_str();
  figure("--intra-node-gb-per-second", flags->intra_node_gb_per_second,
         "Of a link inside a node, both ways together; collectives have half of it");
  figure("--inter-node-gb-per-second", flags->inter_node_gb_per_second, "The same between nodes");
  figure("--copy-gb-per-second", flags->copy_gb_per_second,
         "Copied inside an accelerator's memory, read and written once");
  analytic->add_option("--out", flags->out, "Where the profile is written")->required();
  commands.OnRun(analytic, [flags] { return RunAnalytic(*flags); });
}

}  // namespace penstock::cli
