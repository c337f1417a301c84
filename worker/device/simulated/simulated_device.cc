#include "worker/device/simulated/simulated_device.h"

#include <utility>

#include "common/status/status_macros.h"
#include "worker/comm/groups.h"
#include "worker/device/simulated/simulated_rank.h"
#include "worker/device/simulated/simulated_stage.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

class SimulatedTimer : public InstructionTimer {
 public:
  explicit SimulatedTimer(SimulatedRank& rank) : rank_(rank) {}
  absl::Status StartIteration(const Program& program) override { return rank_.StartIteration(program); }
  absl::Status Begin(const Instruction& instruction) override { return rank_.Begin(instruction); }
  absl::Status End(const Instruction& instruction) override { return rank_.End(instruction); }
  absl::StatusOr<IterationTimes> Finish() override { return rank_.Finish(); }

 private:
  SimulatedRank& rank_;
};

class SimulatedDevice : public Device {
 public:
  explicit SimulatedDevice(const SimulationOptions& options) : options_(options) {}

  at::Device place() const override { return at::kCPU; }

  absl::StatusOr<at::Tensor> NewBuffer(const Transfer& transfer) override {
    return CallTorch("a receive buffer",
                     [&] { return TensorWithoutStorage(transfer.shape, transfer.dtype); });
  }

  absl::StatusOr<TokenBatch> ReadTokens(const MicroBatch&, const ModelConfig&, const TokenNeeds&,
                                        const GroupPlace&) override {
    return TokenBatch();
  }

  absl::StatusOr<TokenBatch> Load(const TokenBatch& tokens) override { return tokens; }

  // One number a layer, which is summed as one however large buckets are.
  absl::StatusOr<std::unique_ptr<Stage>> MakeStage(const ModelConfig& model, const StageRange& range,
                                                   std::optional<uint64_t>, StageGroup& group,
                                                   int64_t) override {
    return MakeSimulatedStage(model, range, group.place());
  }

  std::vector<ParameterSpec> ParametersOf(const ModelConfig&, const StageRange& range,
                                          const GroupPlace&) const override {
    return SimulatedParameterSpecs(range);
  }

  DataType ParameterType(const ModelConfig&) const override { return DataType::kFloat32; }

  absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(
      const CommunicatorOptions& options) override {
    PENSTOCK_RETURN_IF_ERROR(CheckSimulation(options_, options.world_size));
    SimulatedRankParts parts = {
        .options = options_, .rank = options.rank, .places = {}, .groups = options.groups};
    for (const PassGroups& passes : PassesOf(options)) parts.places.push_back(passes.place);
    CommunicatorOptions own = options;
    // Passes exchange nothing but times.
    own.passes = {};
    own.other_passes = {};
    own.joins_passes_later = false;
    PENSTOCK_ASSIGN_OR_RETURN(parts.network, MakeGlooCommunicator(own));
    parts.clock = MakeWallClock();
    auto rank = std::make_unique<SimulatedRank>(std::move(parts));
    rank_ = rank.get();
    return rank;
  }

  absl::StatusOr<at::Tensor> ToHost(const at::Tensor& tensor) override { return tensor; }

  std::unique_ptr<InstructionTimer> MakeTimer() override { return std::make_unique<SimulatedTimer>(*rank_); }

  std::unique_ptr<InstructionOrder> MakeOrder(InstructionTimer* timer) override {
    return MakeHostOrder(timer);
  }

 private:
  const SimulationOptions options_;
  // The communicator that was made last, which its caller owns.
  SimulatedRank* rank_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> MakeSimulatedDevice(const SimulationOptions& options) {
  return std::make_unique<SimulatedDevice>(options);
}

}  // namespace penstock::worker
