// An analytic cost profile: what a model's layers cost by their widths alone, on an accelerator of which a
// few figures are known. For plans before there is a machine; nothing is measured.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const v1::ProfileFile file, AcceleratorProfile(model, {.flops = 400e12}));
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

struct Accelerator {
  // Of large products, a second; half of it where a rank has so many tokens.
  double flops = 200e12;
  double half_efficiency_tokens = 512;
  // Of a layer, forward, beside its products: starting kernels.
  double fixed_ns = 50e3;
  int64_t memory_bytes = 80'000'000'000;
  // Links between neighbours; a rank of a collective sends at half of it.
  uint32_t gpus_per_node = 8;
  double intra_node_bytes_per_second = 600e9;
  double inter_node_bytes_per_second = 100e9;
  int64_t intra_node_latency_ns = 10'000;
  int64_t inter_node_latency_ns = 20'000;
  // Inside its memory, read and written once.
  double copy_bytes_per_second = 900e9;
};

// `model`: a GPT, as a job may have it. Time of a layer is that of its matrices' products and of attention,
// causal, behind `fixed_ns`; memory that of a worker's account (worker/profile/memory.h) without what is
// small: numbers of norms and routers, positions. Layers that have no experts (ModelSpec.dense_layers) have
// figures of their own, those of layers of a dense model of their width. Possible errors: INVALID_ARGUMENT
// (the model cannot be trained, is a T5, or has adapters, which plans add themselves: --lora-rank), naming
// the field.
absl::StatusOr<v1::ProfileFile> AcceleratorProfile(const v1::ModelSpec& model,
                                                   const Accelerator& accelerator);

}  // namespace penstock::core
