#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/data/sample_tokens.h"
#include "worker/device/accelerator_streams.h"
#include "worker/device/device.h"
#include "worker/model/transformer_stage.h"
#include "worker/program/share.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"
#include "worker/torch/place.h"

namespace penstock::worker {
namespace {

class TorchDevice : public Device {
 public:
  // `streams`: null on the CPU.
  TorchDevice(at::Device place, std::unique_ptr<DeviceStreams> streams, const IndexedDataset* dataset,
              InputCut cut)
      : place_(place), streams_(std::move(streams)), dataset_(*dataset), cut_(cut) {}

  at::Device place() const override { return place_; }

  absl::StatusOr<at::Tensor> NewBuffer(const Transfer& transfer) override {
    const auto options = at::TensorOptions(ToScalarType(transfer.dtype)).device(place_);
    return CallTorch("a receive buffer", [&] { return at::empty(transfer.shape, options); });
  }

  absl::StatusOr<TokenBatch> ReadTokens(const MicroBatch& shape, const ModelConfig& model,
                                        const TokenNeeds& needs, const GroupPlace& place) override {
    const size_t samples = needs.any() ? shape.sample_ids.size() : 0;
    std::vector<std::vector<int32_t>> tokens(samples);
    const std::vector<bool> on_rank = SamplesOn(shape, place.context);
    for (size_t i = 0; i < samples; ++i) {
      if (!on_rank[i]) continue;
      PENSTOCK_ASSIGN_OR_RETURN(tokens[i], SampleTokens(dataset_, shape.sample_ids[i], shape.input_tokens[i],
                                                        shape.target_tokens[i], cut_));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::vector<float>> weights,
                              ReadWeights(shape, model, needs, place));
    return MakeTokenBatch(shape, tokens, model, needs, place_, place, weights);
  }

  absl::StatusOr<TokenBatch> Load(const TokenBatch& tokens) override {
    return worker::ToDevice(tokens, place_);
  }

  absl::StatusOr<at::Tensor> ToHost(const at::Tensor& tensor) override {
    return CallTorch("reading from the device", [&] { return tensor.to(at::kCPU); });
  }

  absl::StatusOr<std::unique_ptr<Stage>> MakeStage(const ModelConfig& model, const StageRange& range,
                                                   std::optional<uint64_t> seed, StageGroup& group,
                                                   int64_t bucket_bytes) override {
    return MakeTransformerStage(model, range, seed, place_, group, bucket_bytes);
  }

  absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(
      const CommunicatorOptions& options) override {
    CommunicatorOptions own = options;
    own.device = place_;
    return place_.is_cuda() ? MakeNcclCommunicator(own) : MakeGlooCommunicator(own);
  }

  std::unique_ptr<InstructionTimer> MakeTimer() override {
    return streams_ == nullptr ? MakeHostTimer(/*computes_alone=*/at::get_num_threads() == 1)
                               : MakeStreamTimer(streams_.get());
  }

  std::unique_ptr<InstructionOrder> MakeOrder(InstructionTimer* timer) override {
    return streams_ == nullptr ? MakeHostOrder(timer) : MakeStreamOrder(streams_.get());
  }

 private:
  // Of each sample that the rank's context rank has tokens of; nothing where each position weighs 1.
  absl::StatusOr<std::vector<std::vector<float>>> ReadWeights(const MicroBatch& shape,
                                                              const ModelConfig& model,
                                                              const TokenNeeds& needs,
                                                              const GroupPlace& place) const {
    std::vector<std::vector<float>> weights;
    if (!needs.loss || (shape.loss_weights.empty() && !dataset_.has_weights())) return weights;
    weights.resize(shape.sample_ids.size());
    const std::vector<bool> on_rank = SamplesOn(shape, place.context);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!on_rank[i]) continue;
      const bool first_counts = model.architecture == Architecture::kT5 || shape.input_tokens[i] > 0;
      const std::optional<double> planned = shape.loss_weights.empty() ? std::nullopt : shape.loss_weights[i];
      PENSTOCK_ASSIGN_OR_RETURN(weights[i], SampleWeights(dataset_, shape.sample_ids[i],
                                                          shape.target_tokens[i], first_counts, planned));
    }
    if (shape.loss_weights.empty()) weights.clear();
    return weights;
  }

  const at::Device place_;
  const std::unique_ptr<DeviceStreams> streams_;
  const IndexedDataset& dataset_;
  const InputCut cut_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeTorchDevice(const std::string& name,
                                                        const IndexedDataset* dataset, InputCut cut) {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Device place, PlaceOf(name));
  std::unique_ptr<DeviceStreams> streams;
  if (!place.is_cpu()) {
    absl::StatusOr<std::unique_ptr<DeviceStreams>> made = MakeAcceleratorStreams(place);
    if (!made.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--device ", name, ": ", made.status().message()));
    }
    streams = *std::move(made);
  }
  return std::make_unique<TorchDevice>(place, std::move(streams), dataset, cut);
}

}  // namespace penstock::worker
