#include "tests/integration/streams/recorded_ranks.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "tests/integration/streams/meta_operators.h"
#include "tests/integration/streams/recorded_communicator.h"
#include "tests/integration/streams/recorded_streams.h"
#include "worker/device/device.h"
#include "worker/model/transformer_stage.h"
#include "worker/runtime/trainer.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

class RecordedDevice : public Device {
 public:
  explicit RecordedDevice(Recording* recording) : streams_(recording) {}

  at::Device place() const override { return at::kMeta; }

  absl::StatusOr<at::Tensor> NewBuffer(const Transfer& transfer) override {
    return CallTorch("a buffer", [&] {
      return at::empty(transfer.shape, at::TensorOptions(ToScalarType(transfer.dtype)).device(place()));
    });
  }

  absl::StatusOr<TokenBatch> ReadTokens(const MicroBatch& shape, const ModelConfig& model,
                                        const TokenNeeds& needs, const GroupPlace& of) override {
    std::vector<std::vector<int32_t>> tokens;
    for (size_t i = 0; i < shape.sample_ids.size(); ++i) {
      tokens.emplace_back(size_t{shape.input_tokens[i]} + shape.target_tokens[i], 0);
    }
    return MakeTokenBatch(shape, tokens, model, needs, place(), of);
  }

  absl::StatusOr<TokenBatch> Load(const TokenBatch& tokens) override { return ToDevice(tokens, place()); }

  absl::StatusOr<at::Tensor> ToHost(const at::Tensor& tensor) override {
    streams_.Record(Call::kHostRead);
    return CallTorch("reading", [&] { return at::zeros(tensor.sizes(), tensor.options().device(at::kCPU)); });
  }

  absl::StatusOr<std::unique_ptr<Stage>> MakeStage(const ModelConfig& model, const StageRange& range,
                                                   std::optional<uint64_t> seed, StageGroup& group,
                                                   int64_t bucket_bytes) override {
    return MakeTransformerStage(model, range, seed, place(), group, bucket_bytes);
  }

  absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(
      const CommunicatorOptions& options) override {
    return std::make_unique<RecordedCommunicator>(&streams_, options.passes.place);
  }

  std::unique_ptr<InstructionTimer> MakeTimer() override { return MakeStreamTimer(&streams_); }

  std::unique_ptr<InstructionOrder> MakeOrder(InstructionTimer*) override {
    return MakeStreamOrder(&streams_);
  }

 private:
  RecordedStreams streams_;
};

absl::StatusOr<IterationResult> Run(const JobConfig& job, uint32_t rank, const Program& program,
                                    Recording& recording) {
  CompleteMetaOperators();
  RecordedDevice device(&recording);
  CommunicatorOptions options;
  options.passes.place = job.topology.PlaceOf(rank);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator,
                            device.MakeCommunicator(options));
  const Registration self = {.rank = rank, .epoch = 1, .job = job};
  Trainer trainer({.registration = &self, .device = &device, .communicator = communicator.get()});
  PENSTOCK_RETURN_IF_ERROR(trainer.Run(program).status());
  // As in a training: its tokens are read on another thread.
  auto again = std::make_shared<Program>(program);
  ++again->iteration;
  trainer.Prepare(again);
  recording.clear();
  return trainer.Run(*again);
}

}  // namespace

RecordedRun RunRecorded(const JobConfig& job, uint32_t rank, const Program& program) {
  RecordedRun run;
  absl::StatusOr<IterationResult> result = Run(job, rank, program, run.recording);
  run.status = result.status();
  if (result.ok()) run.result = *std::move(result);
  return run;
}

absl::Status ReadValue() {
  CompleteMetaOperators();
  return RunTorch("reading", [] { (void)at::ones({}, at::kMeta).add(1).item<double>(); });
}

absl::Status CopyToHost() {
  CompleteMetaOperators();
  return RunTorch("copying", [] { (void)at::ones({3}, at::kMeta).add(1).to(at::kCPU); });
}

}  // namespace penstock::worker
