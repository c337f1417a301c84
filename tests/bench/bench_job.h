// The job and the lengths that the planner's benchmarks share: a GPT of 6.7 billion parameters (closed form
// of an 80 GB accelerator at 200 TFLOP/s) with equal stages, and lengths with a long tail. No file from
// outside.
#pragma once

#include <cstdint>
#include <random>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::core {

inline void SetLayerTime(double fixed_ns, double token_ns, double square_ns, v1::LayerCost* layer) {
  v1::LayerTime* time = layer->mutable_forward();
  time->set_fixed_ns(fixed_ns);
  time->set_target_token_ns(token_ns);
  time->set_target_square_ns(square_ns);
  time->set_half_efficiency_tokens(512);
  layer->set_backward_ratio_none(2);
  layer->set_backward_ratio_full(3);
}

inline v1::CostProfile BenchProfile() {
  constexpr double kHidden = 4096;
  v1::CostProfile profile;
  profile.set_bytes_per_element(2);
  profile.set_embedding_parameter_bytes(412e6);
  profile.set_state_bytes_per_parameter_byte(8);
  v1::LayerCost* layer = profile.add_layers();
  layer->set_name("layer");
  layer->set_parameter_bytes(402.653184e6);
  SetLayerTime(0.15e6, 24 * kHidden * kHidden / 200e12 * 1e9, 2 * kHidden / 200e12 * 1e9, layer);
  layer->mutable_stored_none()->set_target_token_bytes(34 * kHidden);
  layer->mutable_stored_full()->set_target_token_bytes(2 * kHidden);
  layer->mutable_peak()->set_target_token_bytes(34 * kHidden);
  v1::LayerCost* head = profile.add_layers();
  head->set_name("head");
  head->set_parameter_bytes(412e6);
  SetLayerTime(0.1e6, 2 * kHidden * 50304 / 200e12 * 1e9, 0, head);
  v1::Cluster* cluster = profile.mutable_cluster();
  cluster->set_memory_bytes(80'000'000'000);
  cluster->set_intra_node_bytes_per_second(600e9);
  cluster->set_inter_node_bytes_per_second(100e9);
  cluster->set_intra_node_latency_ns(10'000);
  cluster->set_inter_node_latency_ns(20'000);
  cluster->set_gpus_per_node(8);
  return profile;
}

inline v1::JobSpec BenchJob(uint32_t stages, uint32_t replicas, v1::Policy policy) {
  v1::JobSpec job;
  job.set_job_id("bench");
  v1::ModelSpec* model = job.mutable_model();
  model->set_architecture(v1::ARCHITECTURE_GPT);
  model->set_layers(32);
  model->set_hidden(4096);
  model->set_heads(32);
  model->set_ffn(16384);
  model->set_vocab(50304);
  model->set_max_sequence_length(8192);
  model->set_dtype(v1::DATA_TYPE_BFLOAT16);
  job.mutable_mesh()->set_pipeline(stages);
  job.mutable_mesh()->set_data(replicas);
  job.mutable_planning()->set_policy(policy);
  *job.mutable_profile() = BenchProfile();
  return job;
}

// Most samples have 16 to 512 tokens, one in 25 has up to 8192.
inline v1::Batch BenchLengths(int64_t samples) {
  std::mt19937_64 random(1);
  v1::Batch batch;
  for (int64_t i = 0; i < samples; ++i) {
    const bool is_long = random() % 25 == 0;
    const uint64_t target = is_long ? 1024 + random() % 7169 : 16 << (random() % 6);
    batch.add_samples()->set_target_tokens(static_cast<uint32_t>(target));
  }
  return batch;
}

// The batch as that of `iteration`, with samples that no other iteration has.
inline void SetIteration(uint64_t iteration, v1::Batch* batch) {
  batch->set_iteration(iteration);
  uint64_t sample_id = iteration * static_cast<uint64_t>(batch->samples_size());
  for (v1::Sample& sample : *batch->mutable_samples()) sample.set_sample_id(sample_id++);
}

}  // namespace penstock::core
