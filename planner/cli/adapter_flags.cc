#include "planner/cli/adapter_flags.h"

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/linear_layer_names.h"
#include "planner/core/contract/adapters.h"
#include "planner/core/cost/adapted_profile.h"

namespace penstock::cli {
namespace {

absl::StatusOr<v1::Adapters> AdaptersOf(const AdapterFlags& flags, const v1::ModelSpec& model) {
  v1::Adapters adapters;
  adapters.set_rank(flags.rank);
  adapters.set_alpha(flags.alpha);
  adapters.set_rank_stabilised(flags.rank_stabilised);
  for (const std::string& name : flags.targets) {
    const auto layers = LinearLayersCalled(name, model);
    if (!layers.ok()) return AnnotateError(layers.status(), "--lora-targets");
    for (const v1::LinearLayer layer : *layers) adapters.add_targets(layer);
  }
  return adapters;
}

}  // namespace

const std::vector<const char*>& AdapterFlagNames() {
  static const auto* names =
      new std::vector<const char*>{"--lora-rank", "--lora-alpha", "--lora-targets", "--lora-rank-stabilised"};
  return *names;
}

void AdapterFlags::AddTo(CLI::App& command) {
  CLI::Option* const given =
      command
          .add_option("--lora-rank", rank,
                      "Train adapters of this rank (LoRA) and nothing else: of each linear layer W of "
                      "--lora-targets, B and A of W + alpha / rank * B A")
          ->check(CLI::Range(1U, 4096U));
  command
      .add_option("--lora-alpha", alpha, "Scale of what adapters add, times the rank (that of --lora-rank)")
      ->check(CLI::Range(1e-6, 1e6))
      ->needs(given);
  command
      .add_option("--lora-targets", targets,
                  "Linear layers that have adapters: q, k, v, o, gate, up, down, all-linear, or as "
                  "transformers calls them (q,v)")
      ->delimiter(',')
      ->needs(given);
  command
      .add_flag("--lora-rank-stabilised", rank_stabilised,
                "The scale is alpha / sqrt(rank) in place of alpha / rank (rsLoRA)")
      ->needs(given);
}

absl::Status AdapterFlags::Give(v1::ModelSpec* model) const {
  if (!any()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Adapters adapters, AdaptersOf(*this, *model));
  if (model->has_adapters()) {
    if (core::AreSame(model->adapters(), adapters)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--lora-rank: the model has adapters of rank ", model->adapters().rank(), " at ",
                     NamesOf(model->adapters()),
                     ", which are trained on; leave --lora-* out, or merge them first (penstock model export "
                     "--merge) and begin anew"));
  }
  *model->mutable_adapters() = adapters;
  return AnnotateError(core::CheckAdapters(*model), "--lora-rank");
}

absl::Status AdapterFlags::Give(v1::ProfileFile* file) const {
  if (!any()) return absl::OkStatus();
  v1::ModelSpec adapted = file->model();
  PENSTOCK_RETURN_IF_ERROR(Give(&adapted));
  return core::AdaptProfile(adapted.adapters(), file);
}

}  // namespace penstock::cli
