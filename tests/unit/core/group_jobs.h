// Jobs whose stages are held by groups of ranks.
#pragma once

#include <cstdint>

#include "penstock/v1/job.pb.h"

namespace penstock::core {

// Of GptJob. What ranks exchange inside passes takes a small part of them.
inline void SetGroup(uint32_t context, uint32_t tensor, v1::JobSpec* job) {
  job->mutable_mesh()->set_context(context);
  job->mutable_mesh()->set_tensor(tensor);
  v1::Cluster& cluster = *job->mutable_profile()->mutable_cluster();
  cluster.set_intra_node_collective_bytes_per_second(1e11);
  cluster.set_intra_node_collective_latency_ns(5);
  cluster.set_inter_node_collective_bytes_per_second(1e11);
  cluster.set_inter_node_collective_latency_ns(5);
  if (tensor == 1) return;
  for (v1::LayerCost& layer : *job->mutable_profile()->mutable_layers()) {
    v1::TensorCost* const cost = layer.add_tensor();
    cost->set_degree(tensor);
    cost->set_efficiency(0.9);
  }
}

}  // namespace penstock::core
