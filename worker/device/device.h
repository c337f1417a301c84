// What a rank computes on: where its tensors lie, and what depends on that. The executor and the trainer know
// no more of a device than this.
//
//   PENSTOCK_ASSIGN_OR_RETURN(auto device, MakeTorchDevice("cpu", dataset.get()));
//   PENSTOCK_ASSIGN_OR_RETURN(auto communicator, device->MakeCommunicator(options));
//   PENSTOCK_ASSIGN_OR_RETURN(auto stage, device->MakeStage(job.model, range, job.training.seed, group,
//                                                             job.gradient_bucket_bytes));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"
#include "worker/comm/communicator.h"
#include "worker/data/sample_tokens.h"
#include "worker/device/instruction_order.h"
#include "worker/device/instruction_timer.h"
#include "worker/model/parameters.h"
#include "worker/model/stage.h"
#include "worker/model/stage_group.h"
#include "worker/model/token_batch.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Calls come from one thread, but for ReadTokens.
class Device {
 public:
  virtual ~Device() = default;

  // Where the tensors of the stages lie.
  virtual at::Device place() const = 0;

  // A buffer for the data of a RECV, of the transfer's shape and type; its contents are undefined.
  // Possible errors: RESOURCE_EXHAUSTED (memory).
  virtual absl::StatusOr<at::Tensor> NewBuffer(const Transfer& transfer) = 0;

  // What a stage needs of a micro-batch's samples at `place` of its group, in memory of the host that Load
  // can copy from. Any thread. Possible errors: INVALID_ARGUMENT (a sample that the dataset does not have, or
  // that is shorter there).
  virtual absl::StatusOr<TokenBatch> ReadTokens(const MicroBatch& shape, const ModelConfig& model,
                                                const TokenNeeds& needs, const GroupPlace& place) = 0;

  // The same on the device, without waiting for it. Possible errors: RESOURCE_EXHAUSTED (memory).
  virtual absl::StatusOr<TokenBatch> Load(const TokenBatch& tokens) = 0;

  // The values of a tensor, on the CPU. Waits for the device: after InstructionOrder::Finish it has nothing
  // to wait for. Possible errors: INTERNAL.
  virtual absl::StatusOr<at::Tensor> ToHost(const at::Tensor& tensor) = 0;

  // This rank's part of a stage; `group`, with which its passes exchange, must outlive it. Without a seed its
  // parameters are 0. `bucket_bytes`: see MakeFlatParameters. Possible errors: those of MakeTransformerStage.
  virtual absl::StatusOr<std::unique_ptr<Stage>> MakeStage(const ModelConfig& model, const StageRange& range,
                                                           std::optional<uint64_t> seed, StageGroup& group,
                                                           int64_t bucket_bytes) = 0;
  // The parameters of a rank's part of a stage, and the type in which they are.
  virtual std::vector<ParameterSpec> ParametersOf(const ModelConfig& model, const StageRange& range,
                                                  const GroupPlace& of) const {
    return StageParameterSpecs(model, range, of);
  }
  virtual DataType ParameterType(const ModelConfig& model) const { return model.dtype; }

  // Possible errors: those of MakeGlooCommunicator and MakeNcclCommunicator. The device must outlive it.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(
      const CommunicatorOptions& options) = 0;

  // Both are of one rank and go together; the device and the timer must outlive the order.
  virtual std::unique_ptr<InstructionTimer> MakeTimer() = 0;
  virtual std::unique_ptr<InstructionOrder> MakeOrder(InstructionTimer* timer) = 0;
};

// `name`: "cpu" or "cuda:N". Computes with LibTorch and communicates over Gloo or NCCL. `dataset` must
// outlive the device; `cut` says how its samples are cut. A GPU becomes that of the calling thread. Possible
// errors: INVALID_ARGUMENT (names --device).
absl::StatusOr<std::unique_ptr<Device>> MakeTorchDevice(const std::string& name,
                                                        const IndexedDataset* dataset,
                                                        InputCut cut = InputCut::kEnd);

}  // namespace penstock::worker
