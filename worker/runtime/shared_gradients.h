// Gradients of the parameters that several stages of a pipeline hold (T5's relative position biases, token
// embeddings that are tied): what
// counts is their sum, and every copy gets the same one, so that all copies stay equal in every bit.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::vector<at::Tensor> sums,
//                             GatherSharedGradients(model, stages, sharding, device));
//   ... sum them over the ranks of the pipeline ...
//   PENSTOCK_ASSIGN_OR_RETURN(at::Tensor squares,
//                             ScatterSharedGradients(model, stages, sharding, sums, device));
//
// Where replicas divide the optimizer's state, all this is about the part that this replica updates: of each
// shared parameter the same one on every stage.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/stage.h"
#include "worker/optimizer/sharding.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// The sums over the stages of this rank, flat, in the order of SharedParameterSpecs; zeros where it holds
// none, so that all ranks of a pipeline (of stage groups: those of equal place) have the same tensors. The
// first copy's gradient becomes the sum, and shares its memory. Possible errors: RESOURCE_EXHAUSTED (memory),
// INTERNAL.
absl::StatusOr<std::vector<at::Tensor>> GatherSharedGradients(const ModelConfig& model,
                                                              const std::map<uint32_t, Stage*>& stages,
                                                              const Sharding& sharding, at::Device device,
                                                              const GroupPlace& place = {});

// Writes the sums over the pipeline into every copy of this rank, and returns the sums of their squares,
// float64 [shards] on the device; 0 for shards that are updated elsewhere, and without what other tensor
// ranks count. Possible errors: INTERNAL.
absl::StatusOr<at::Tensor> ScatterSharedGradients(const ModelConfig& model,
                                                  const std::map<uint32_t, Stage*>& stages,
                                                  const Sharding& sharding,
                                                  const std::vector<at::Tensor>& sums, at::Device device,
                                                  const GroupPlace& place = {});

}  // namespace penstock::worker
