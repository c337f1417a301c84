#include "tests/unit/core/job_builder.h"

#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"

namespace penstock::core {
namespace {

void SetTime(double fixed, double target, double square, v1::LayerCost* layer) {
  v1::LayerTime* time = layer->mutable_forward();
  time->set_fixed_ns(fixed);
  time->set_target_token_ns(target);
  time->set_target_square_ns(square);
  layer->set_backward_ratio_none(2);
  layer->set_backward_ratio_full(3);
  layer->set_backward_input_share(0.5);
}

void SetTargetMemory(v1::LayerCost* layer) {
  layer->set_parameter_bytes(1000);
  layer->mutable_stored_none()->set_target_token_bytes(100);
  layer->mutable_stored_full()->set_target_token_bytes(10);
  layer->mutable_peak()->set_target_token_bytes(50);
}

void AddHead(v1::CostProfile* profile) {
  v1::LayerCost* head = profile->add_layers();
  head->set_name("head");
  head->set_parameter_bytes(2000);
  SetTime(500, 5, 0, head);
}

v1::JobSpec CommonJob(uint32_t pipeline, uint32_t data, v1::Policy policy) {
  v1::JobSpec job;
  job.set_job_id("test");
  v1::ModelSpec* model = job.mutable_model();
  model->set_hidden(4);
  model->set_heads(2);
  model->set_ffn(16);
  model->set_vocab(64);
  model->set_max_sequence_length(4096);
  model->set_dtype(v1::DATA_TYPE_FLOAT32);
  job.mutable_mesh()->set_pipeline(pipeline);
  job.mutable_mesh()->set_data(data);
  job.mutable_planning()->set_policy(policy);
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
  job.mutable_planning()->set_memory_limit_bytes(int64_t{1} << 40);
  v1::CostProfile* profile = job.mutable_profile();
  profile->set_version(3);
  profile->set_bytes_per_element(4);
  profile->set_embedding_parameter_bytes(2000);
  profile->set_state_bytes_per_parameter_byte(4);
  profile->set_sharded_state_bytes_per_parameter_byte(2);
  profile->set_optimizer_ns_per_parameter_byte(0.5);
  v1::Cluster* cluster = profile->mutable_cluster();
  cluster->set_intra_node_bytes_per_second(1e9);
  cluster->set_inter_node_bytes_per_second(2e8);
  cluster->set_intra_node_latency_ns(100);
  cluster->set_inter_node_latency_ns(500);
  cluster->set_gpus_per_node(4);
  return job;
}

}  // namespace

v1::JobSpec GptJob(uint32_t pipeline, uint32_t data, v1::Policy policy) {
  v1::JobSpec job = CommonJob(pipeline, data, policy);
  job.mutable_model()->set_architecture(v1::ARCHITECTURE_GPT);
  job.mutable_model()->set_layers(8);
  v1::LayerCost* layer = job.mutable_profile()->add_layers();
  layer->set_name("layer");
  SetTime(1000, 10, 0.01, layer);
  SetTargetMemory(layer);
  AddHead(job.mutable_profile());
  return job;
}

void DivideExperts(v1::JobSpec& job) {
  job.mutable_mesh()->set_context(4);
  job.mutable_mesh()->set_expert(4);
  v1::ModelSpec& model = *job.mutable_model();
  model.set_experts(4);
  model.set_experts_per_token(1);
  model.set_ffn(10);
  model.set_feed_forward_biases(v1::BIASES_NONE);
}

v1::JobSpec T5Job(uint32_t pipeline, uint32_t data, v1::Policy policy) {
  v1::JobSpec job = CommonJob(pipeline, data, policy);
  job.mutable_model()->set_architecture(v1::ARCHITECTURE_T5);
  job.mutable_model()->set_encoder_layers(4);
  job.mutable_model()->set_decoder_layers(4);
  v1::LayerCost* encoder = job.mutable_profile()->add_layers();
  encoder->set_name("encoder");
  SetTime(1000, 0, 0, encoder);
  encoder->mutable_forward()->set_source_token_ns(10);
  encoder->mutable_forward()->set_source_square_ns(0.01);
  encoder->set_parameter_bytes(1000);
  encoder->mutable_stored_none()->set_source_token_bytes(100);
  encoder->mutable_stored_full()->set_source_token_bytes(10);
  encoder->mutable_peak()->set_source_token_bytes(50);
  v1::LayerCost* decoder = job.mutable_profile()->add_layers();
  decoder->set_name("decoder");
  SetTime(1200, 12, 0.01, decoder);
  decoder->mutable_forward()->set_cross_ns(0.02);
  decoder->mutable_forward()->set_source_token_ns(2);
  SetTargetMemory(decoder);
  decoder->mutable_stored_none()->set_source_token_bytes(20);
  decoder->mutable_stored_full()->set_source_token_bytes(5);
  AddHead(job.mutable_profile());
  return job;
}

CostModel ModelOf(const v1::JobSpec& spec) {
  const Job job = JobFromProto(spec).value();
  return CostModel(ProfileFromProto(spec.profile(), job.architecture).value(), job);
}

void SetEfficiency(const std::vector<std::pair<double, double>>& points, v1::LayerTime* time) {
  time->clear_half_efficiency_tokens();
  time->clear_efficiency();
  for (const auto& [tokens, factor] : points) {
    v1::EfficiencyPoint* const point = time->add_efficiency();
    point->set_tokens(tokens);
    point->set_factor(factor);
  }
}

v1::Batch MakeBatch(const std::vector<std::pair<uint32_t, uint32_t>>& lengths) {
  v1::Batch batch;
  batch.set_iteration(7);
  for (const auto& [input, target] : lengths) {
    v1::Sample* sample = batch.add_samples();
    sample->set_sample_id(static_cast<uint64_t>(100 + batch.samples_size()));
    sample->set_input_tokens(input);
    sample->set_target_tokens(target);
  }
  return batch;
}

}  // namespace penstock::core
