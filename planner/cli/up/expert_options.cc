#include "planner/cli/up/expert_options.h"

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/up/check_range.h"
#include "planner/core/contract/limits.h"

namespace penstock::cli {
namespace {

absl::Status CheckDenseLayers(const UpOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--dense-ffn", options.dense_ffn, 0, core::kMostFeedForwardWidth));
  if (options.dense_layers.empty()) {
    if (options.dense_ffn == 0) return absl::OkStatus();
    return absl::InvalidArgumentError("--dense-ffn: every layer has experts; give --dense-layers");
  }
  const std::set<uint32_t> layers(options.dense_layers.begin(), options.dense_layers.end());
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--dense-layers", *layers.begin(), 1, options.layers));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--dense-layers", *layers.rbegin(), 1, options.layers));
  if (layers.size() < options.layers) return absl::OkStatus();
  return absl::InvalidArgumentError("--dense-layers: no layer would have experts; leave out --experts");
}

// What is said of experts where there are none; empty: nothing.
std::string MisplacedFlag(const UpOptions& options) {
  if (options.shared_expert_ffn > 0) return "--shared-expert-ffn: stands beside other experts";
  if (options.gated_shared_expert) return "--gated-shared-expert: stands beside other experts";
  if (!options.dense_layers.empty()) return "--dense-layers: without experts all layers are dense";
  return options.dense_ffn > 0 ? "--dense-ffn: without experts it is --ffn" : "";
}

}  // namespace

absl::Status CheckExperts(const UpOptions& options) {
  if (options.experts == 0) {
    const std::string misplaced = MisplacedFlag(options);
    if (misplaced.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(misplaced, "; give --experts"));
  }
  if (options.architecture == v1::ARCHITECTURE_T5)
    return absl::InvalidArgumentError("--experts: a T5 has none; use --architecture gpt");
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--experts", options.experts, 1, core::kMostExperts));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--experts-per-token", options.experts_per_token, 1, options.experts));
  PENSTOCK_RETURN_IF_ERROR(
      CheckRange("--shared-expert-ffn", options.shared_expert_ffn, 0, core::kMostFeedForwardWidth));
  if (options.gated_shared_expert && options.shared_expert_ffn == 0)
    return absl::InvalidArgumentError("--gated-shared-expert: there is none; give --shared-expert-ffn");
  return CheckDenseLayers(options);
}

void SetExperts(const UpOptions& options, v1::ModelSpec& model) {
  if (options.experts == 0) return;
  model.set_experts(options.experts);
  model.set_experts_per_token(options.experts_per_token);
  model.set_normalised_experts(true);
  model.set_shared_expert_ffn(options.shared_expert_ffn);
  model.set_gated_shared_expert(options.gated_shared_expert);
  model.set_feed_forward_biases(v1::BIASES_NONE);
  const std::set<uint32_t> dense(options.dense_layers.begin(), options.dense_layers.end());
  model.mutable_dense_layers()->Assign(dense.begin(), dense.end());
  model.set_dense_ffn(options.dense_ffn);
}

// Those of the flags, where there are some.
absl::StatusOr<v1::ModelSpec> WithRouterOptions(const UpOptions& options, v1::ModelSpec model) {
  const std::pair<const char*, std::optional<double>> factors[] = {
      {"--router-balance-loss", options.router_balance_loss},
      {"--router-z-loss", options.router_z_loss},
      {"--expert-capacity", options.expert_capacity}};
  for (const auto& [flag, weight] : factors) {
    if (!weight.has_value()) continue;
    if (!std::isfinite(*weight) || *weight < 0)
      return absl::InvalidArgumentError(absl::StrCat(flag, " ", *weight, ": must be a number of at least 0"));
    if (model.experts() == 0)
      return absl::InvalidArgumentError(absl::StrCat(flag, ": the model has no experts, and so no router"));
  }
  if (options.router_balance_loss.has_value()) model.set_router_balance_loss(*options.router_balance_loss);
  if (options.router_z_loss.has_value()) model.set_router_z_loss(*options.router_z_loss);
  if (options.expert_capacity.has_value()) model.set_expert_capacity_factor(*options.expert_capacity);
  return model;
}

}  // namespace penstock::cli
