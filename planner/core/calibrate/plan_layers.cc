#include "planner/core/calibrate/plan_layers.h"

#include <algorithm>

#include "common/status/status_macros.h"
#include "planner/core/contract/micro_batch_shares.h"

namespace penstock::core {
namespace {

StageRecompute RecomputeAt(const v1::MicroBatch& micro_batch, int stage) {
  if (stage >= micro_batch.recompute_size()) return {};
  return {.selective = static_cast<int32_t>(micro_batch.recompute(stage).selective_layers()),
          .full = static_cast<int32_t>(micro_batch.recompute(stage).full_layers())};
}

}  // namespace

absl::StatusOr<PlanLayers> PlanLayers::OfPlan(const v1::Plan& plan, const Batch& batch,
                                              const CostModel& costs) {
  PlanLayers layers(plan, costs);
  for (int replica = 0; replica < plan.replicas_size(); ++replica)
    PENSTOCK_RETURN_IF_ERROR(layers.Read(batch, replica));
  return layers;
}

absl::StatusOr<PlanLayers> PlanLayers::OfReplica(const v1::Plan& plan, const Batch& batch,
                                                 const CostModel& costs, int replica) {
  PlanLayers layers(plan, costs);
  PENSTOCK_RETURN_IF_ERROR(layers.Read(batch, replica));
  return layers;
}

absl::Status PlanLayers::Read(const Batch& batch, int replica) {
  for (const v1::MicroBatch& micro_batch : plan_->replicas(replica).micro_batches()) {
    for (const uint32_t sample : micro_batch.samples()) {
      if (sample >= batch.samples.size())
        return absl::InvalidArgumentError("plan.replicas: a sample that the batch lacks");
    }
    PENSTOCK_ASSIGN_OR_RETURN(const SharesInParts shares,
                              ComputedShares(micro_batch, batch, costs_->nodes(), costs_->group().context,
                                             costs_->profile().windows));
    auto& of_micro_batch = layers_[replica].emplace_back();
    for (size_t context = 0; context < shares.whole.size(); ++context) {
      if (!costs_->Layers(shares.whole[context], shares.parts[context], shares.whole_backward,
                          &of_micro_batch.emplace_back()))
        return absl::InvalidArgumentError("plan.replicas: a micro-batch outside of the profile");
    }
  }
  return absl::OkStatus();
}

int64_t PlanLayers::OwnNs(int replica, Op pass, int micro_batch, int stage, int context) const {
  const LayerCosts& layers = layers_[replica][micro_batch][context];
  const auto slowed = [&](int64_t ns) {
    return costs_->slow_groups().Slowed(ns, replica, costs_->position_of(stage), context);
  };
  if (pass == Op::kForward) return slowed(costs_->ForwardNs(stage, layers));
  const int64_t weight_ns = slowed(costs_->WeightNs(stage, layers));
  if (pass == Op::kBackwardWeight) return weight_ns;
  const StageRecompute recompute = RecomputeAt(plan_->replicas(replica).micro_batches(micro_batch), stage);
  const int64_t backward_ns = slowed(costs_->BackwardNs(stage, layers, recompute));
  return pass == Op::kBackward ? backward_ns : backward_ns - weight_ns;
}

int64_t PlanLayers::PassNs(int replica, Op pass, int micro_batch, int stage) const {
  int64_t longest = 0;
  for (int context = 0; context < costs_->group().context; ++context)
    longest = std::max(longest, OwnNs(replica, pass, micro_batch, stage, context));
  return longest;
}

}  // namespace penstock::core
