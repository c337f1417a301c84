#include "tests/unit/worker/agent/planner_agent_fixture.h"

namespace penstock::worker {

v1::RegisterWorkerResponse ValidRegistration() {
  v1::RegisterWorkerResponse response;
  response.set_rank(1);
  response.set_epoch(4);
  response.set_heartbeat_interval_ms(10);
  v1::JobSpec& job = *response.mutable_job();
  job.set_job_id("job");
  v1::ModelSpec& model = *job.mutable_model();
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_layers(2);
  model.set_hidden(8);
  model.set_heads(2);
  model.set_ffn(16);
  model.set_vocab(32);
  model.set_max_sequence_length(64);
  model.set_dtype(v1::DATA_TYPE_FLOAT32);
  job.mutable_mesh()->set_pipeline(2);
  job.mutable_mesh()->set_data(1);
  v1::ReplicaTopology& replica = *response.mutable_topology()->add_replicas();
  for (uint32_t rank = 0; rank < 2; ++rank) replica.add_stages()->add_ranks(rank);
  return response;
}

v1::StreamProgramsResponse ProgramOf(uint64_t iteration) {
  v1::StreamProgramsResponse response;
  response.set_iteration(iteration);
  response.set_loss_tokens(1);
  response.add_layers_per_stage(1);
  response.add_layers_per_stage(1);
  response.mutable_program()->set_rank(1);
  response.mutable_program()->add_stages(1);
  return response;
}

v1::HeartbeatResponse InState(v1::EpochState state) {
  v1::HeartbeatResponse response;
  response.set_state(state);
  return response;
}

}  // namespace penstock::worker
