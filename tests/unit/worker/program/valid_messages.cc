#include "tests/unit/worker/program/valid_messages.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace penstock::worker {

v1::JobSpec ValidJob() {
  v1::JobSpec job;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(R"pb(
                                                                      job_id: "job"
                                                                      model {
                                                                        architecture: ARCHITECTURE_GPT
                                                                        layers: 4
                                                                        hidden: 8
                                                                        heads: 2
                                                                        ffn: 16
                                                                        vocab: 32
                                                                        max_sequence_length: 64
                                                                        dtype: DATA_TYPE_FLOAT64
                                                                      }
                                                                      mesh { pipeline: 2 data: 2 }
                                                                      training {
                                                                        seed: 7
                                                                        learning_rate { peak: 0.1 }
                                                                        beta1: 0.8
                                                                        iterations: 3
                                                                      }
                                                                    )pb",
                                                                    &job);
  EXPECT_TRUE(parsed);
  return job;
}

v1::JobSpec JobOfExperts() {
  v1::JobSpec job = ValidJob();
  v1::ModelSpec& spec = *job.mutable_model();
  spec.set_experts(4);
  spec.set_experts_per_token(2);
  spec.set_feed_forward_biases(v1::BIASES_NONE);
  spec.set_shared_expert_ffn(12);
  spec.set_gated_shared_expert(true);
  spec.set_query_key_value_clip(8);
  spec.set_router_balance_loss(0.01);
  spec.set_router_z_loss(0.001);
  spec.set_expert_capacity_factor(1.25);
  return job;
}

v1::Topology ValidTopology() {
  v1::Topology topology;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    if (rank % 2 == 0) topology.add_replicas();
    topology.mutable_replicas(static_cast<int>(rank / 2))->add_stages()->add_ranks(rank);
  }
  return topology;
}

JobConfig Job(const v1::JobSpec& spec) {
  JobConfig job = *JobFromProto(spec);
  job.topology = *TopologyFromProto(ValidTopology(), job);
  return job;
}

JobConfig ContextJob(const std::vector<uint32_t>& first, const std::vector<uint32_t>& second) {
  v1::JobSpec spec = ValidJob();
  spec.mutable_mesh()->set_data(1);
  spec.mutable_mesh()->set_context(2);
  JobConfig job = *JobFromProto(spec);
  v1::Topology topology;
  topology.add_replicas();
  for (const std::vector<uint32_t>& ranks : {first, second}) {
    topology.mutable_replicas(0)->add_stages()->mutable_ranks()->Add(ranks.begin(), ranks.end());
  }
  const absl::StatusOr<Topology> converted = TopologyFromProto(topology, job);
  if (converted.ok()) job.topology = *converted;
  EXPECT_EQ(converted.ok(), job.topology.ranks() == 4) << converted.status();
  return job;
}

JobConfig ExpertJob() {
  JobConfig job = ContextJob();
  job.expert = 2;
  job.model.experts = 4;
  return job;
}

v1::StreamProgramsResponse ValidMessage() {
  v1::StreamProgramsResponse message;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(
      R"pb(
        iteration: 5
        loss_tokens: 20
        layers_per_stage: 2
        layers_per_stage: 2
        groups { ranks: 1 ranks: 3 }
        groups { ranks: 0 ranks: 1 }
        samples { sample_id: 10 input_tokens: 2 target_tokens: 3 }
        samples { sample_id: 11 target_tokens: 4 }
        samples { sample_id: 12 target_tokens: 6 }
        micro_batches {
          samples: 0
          samples: 2
          layout: LAYOUT_PADDED
          rows: 2
          target_length: 6
          computed_tokens: 12
          recompute { full_layers: 2 }
          recompute { full_layers: 1 }
        }
        micro_batches {
          samples: 1
          layout: LAYOUT_PACKED
          target_cu_seqlens: 0
          target_cu_seqlens: 4
          recompute {}
          recompute {}
        }
        program {
          rank: 1
          replica: 0
          stages: 1
          instructions { id: 0 op: OP_LOAD stream: STREAM_COMPUTE stage: 1 }
          instructions {
            id: 1
            op: OP_RECV
            stream: STREAM_PREVIOUS
            stage: 1
            transfer {
              peer: 0
              kind: TRANSFER_KIND_ACTIVATION
              shape: 2
              shape: 6
              shape: 8
              dtype: DATA_TYPE_FLOAT64
              bytes: 768
            }
          }
          instructions { id: 2 op: OP_WAIT stream: STREAM_COMPUTE stage: 1 transfer_id: 1 deps: 1 }
          instructions {
            id: 3
            op: OP_FORWARD
            stream: STREAM_COMPUTE
            stage: 1
            deps: 0
            deps: 2
            expected_duration_ns: 1234
          }
          instructions { id: 4 op: OP_FREE stream: STREAM_COMPUTE stage: 1 part: 2 }
          instructions {
            id: 5
            op: OP_REDUCE_GRADIENTS
            stream: STREAM_COLLECTIVE
            stage: 1
            collective { group: 0 }
          }
          instructions {
            id: 6
            op: OP_OPTIMIZER_STEP
            stream: STREAM_COMPUTE
            collective { group: 1 }
          }
        }
      )pb",
      &message);
  EXPECT_TRUE(parsed);
  return message;
}

v1::StreamProgramsResponse ContextMessage() {
  v1::StreamProgramsResponse message = ValidMessage();
  message.clear_groups();
  for (const std::vector<uint32_t>& ranks : std::vector<std::vector<uint32_t>>{{2, 3}, {0, 1, 2, 3}}) {
    message.add_groups()->mutable_ranks()->Add(ranks.begin(), ranks.end());
  }
  for (const uint32_t first : {1, 0}) message.mutable_micro_batches(0)->add_span_first(first);
  for (const uint32_t ranks : {1, 2}) message.mutable_micro_batches(0)->add_span_ranks(ranks);
  message.mutable_micro_batches(1)->add_span_first(0);
  message.mutable_micro_batches(1)->add_span_ranks(1);
  message.mutable_program()->set_rank(3);
  v1::Instruction& pass = *message.mutable_program()->mutable_instructions(3);
  pass.mutable_collective()->set_group(0);
  pass.set_own_duration_ns(1000);
  pass.mutable_exchange()->set_context_ns(10);
  return message;
}

}  // namespace penstock::worker
