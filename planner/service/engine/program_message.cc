#include "planner/service/engine/program_message.h"

namespace penstock {

v1::StreamProgramsResponse MakeProgramMessage(const v1::Batch& batch, const v1::Plan& plan, uint32_t rank) {
  const v1::Program& program = plan.programs(rank);
  v1::StreamProgramsResponse message;
  message.set_iteration(plan.iteration());
  message.set_plan_version(plan.plan_version());
  message.set_content_hash(plan.content_hash());
  *message.mutable_program() = program;
  *message.mutable_micro_batches() = plan.replicas(program.replica()).micro_batches();
  *message.mutable_samples() = batch.samples();
  message.set_loss_tokens(plan.loss_tokens());
  *message.mutable_groups() = plan.groups();
  *message.mutable_layers_per_stage() = plan.layers_per_stage();
  return message;
}

}  // namespace penstock
