#include "planner/service/engine/program_message.h"

#include <algorithm>
#include <utility>

#include "common/compact/micro_batch_columns.h"
#include "common/mesh/rank_places.h"
#include "common/status/status_macros.h"
#include "planner/service/state/loss_weight.h"

namespace penstock {
namespace {

// The replica's micro-batches, with its samples alone: indices count in the message, not in the batch.
void AddMicroBatches(const v1::Batch& batch, const v1::Replica& replica,
                     v1::StreamProgramsResponse* message) {
  *message->mutable_micro_batches() = replica.micro_batches();
  for (v1::MicroBatch& micro_batch : *message->mutable_micro_batches()) {
    for (uint32_t& index : *micro_batch.mutable_samples()) {
      *message->add_samples() = batch.samples(static_cast<int>(index));
      index = static_cast<uint32_t>(message->samples_size() - 1);
    }
  }
}

// All groups, so that their numbers stay, but only the rank's own with their members: with thousands of ranks
// these would be most of every message.
void AddGroups(const v1::Plan& plan, uint32_t rank, v1::StreamProgramsResponse* message) {
  for (const v1::CollectiveGroup& group : plan.groups()) {
    v1::CollectiveGroup* added = message->add_groups();
    if (std::ranges::find(group.ranks(), rank) != group.ranks().end()) *added = group;
  }
}

}  // namespace

v1::StreamProgramsResponse MakeProgramMessage(const v1::Batch& batch, const v1::Plan& plan, uint32_t rank,
                                              absl::Span<const int64_t> profile_durations) {
  const v1::Program& program = plan.programs(static_cast<int>(rank));
  v1::StreamProgramsResponse message;
  message.set_iteration(plan.iteration());
  message.set_plan_version(plan.plan_version());
  message.set_content_hash(plan.content_hash());
  *message.mutable_program() = program;
  AddMicroBatches(batch, plan.replicas(static_cast<int>(program.replica())), &message);
  message.set_loss_tokens(WeighsNothing(batch, plan) ? 0 : plan.loss_tokens());
  message.set_loss_weight(plan.loss_weight());
  message.set_strategy(plan.strategy());
  message.set_real_tokens(plan.real_tokens());
  AddGroups(plan, rank, &message);
  const v1::StrategyMesh* const mesh = MeshSideBySide(plan, program.replica());
  *message.mutable_layers_per_stage() = mesh == nullptr ? plan.layers_per_stage() : mesh->layers_per_stage();
  message.mutable_profile_duration_ns()->Assign(profile_durations.begin(), profile_durations.end());
  if (plan.has_validation())
    *message.mutable_validation() =
        MakeProgramMessage(batch.validation(), plan.validation(), rank, /*profile_durations=*/{});
  return message;
}

absl::StatusOr<v1::StreamProgramsResponse> MakeProgramMessage(const v1::Batch& batch, const PackedPlan& plan,
                                                              uint32_t rank,
                                                              absl::Span<const int64_t> profile_durations,
                                                              bool compact, const NewTopologies& topologies) {
  v1::StreamProgramsResponse message = MakeProgramMessage(batch, plan.frame(), rank, profile_durations);
  if (const PackedPlan* const validation = plan.validation(); validation != nullptr) {
    PENSTOCK_ASSIGN_OR_RETURN(
        *message.mutable_validation(),
        MakeProgramMessage(batch.validation(), *validation, rank,
                           /*profile_durations=*/{}, compact, {.of_plan = topologies.of_validation}));
  }
  if (topologies.of_plan.has_value()) *message.mutable_new_topology() = *topologies.of_plan;
  if (!compact) {
    PENSTOCK_ASSIGN_OR_RETURN(*message.mutable_program(), plan.Program(static_cast<int>(rank)));
    return message;
  }
  message.set_instruction_columns(plan.columns(static_cast<int>(rank)));
  if (auto columns = PackMicroBatches(message.micro_batches(), message.samples())) {
    message.set_micro_batch_columns(*std::move(columns));
    message.clear_micro_batches();
    message.clear_samples();
  }
  return message;
}

}  // namespace penstock
