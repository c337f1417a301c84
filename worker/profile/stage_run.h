// Runs passes of a stage of a model and reads the clock between them.
//
//   PENSTOCK_ASSIGN_OR_RETURN(StageRun run, StageRun::Create(config, range, {}, /*most=*/4, device, clocks));
//   PENSTOCK_RETURN_IF_ERROR(run.Prepare(shape));
//   PENSTOCK_ASSIGN_OR_RETURN(const auto times, MeasureInTurns({{&run, PassKind()}}, budget_ns));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/model/stage.h"
#include "worker/profile/lone_rank.h"
#include "worker/profile/measured_device.h"
#include "worker/program/program.h"

namespace penstock::worker {

double Median(std::vector<double> values);
double ParameterBytes(const Stage& stage);

// How the passes of a micro-batch are run.
struct PassKind {
  LayerRecompute recompute = {};
  bool split = false;
};

struct PassTimes {
  double forward_ns = 0;
  // Of a split backward pass: that of the input.
  double backward_ns = 0;
  double weight_ns = 0;
  // Of the forward pass: median distance of its repeats from their median, as a share of it.
  double spread = 0;
};

// What the tensors of a micro-batch take on a stage, bytes. The encoder's output, which a T5's decoder passes
// on, is no layer's own and not among them.
struct PassBytes {
  // Between the passes: the input is among it, the output and the tokens are not.
  double kept = 0;
  // Of a split backward pass: between that of the input and that of the weights.
  double put_aside = 0;
  // At once, at most, while the backward pass, or that of the input, runs: what is kept, and the gradient of
  // the output, which the layer above has just made. Not that of the input, for which plans have room.
  double backward_peak = 0;
};

// A stage of the model with the tensors that a micro-batch needs to pass through it. There are several alike,
// which take turns: in training a layer's parameters and gradients are out of the caches when the next
// micro-batch comes, because the other layers' have been there meanwhile.
class StageRun {
 public:
  // `most`: of stages alike. Of a stage group it is one rank's part, who exchanges nothing. Possible errors:
  // those of MakeTransformerStage.
  static absl::StatusOr<StageRun> Create(const ModelConfig& config, const StageRange& range,
                                         const GroupPlace& group, int64_t most, at::Device place,
                                         const MeasuringClocks& clocks);

  const std::vector<std::unique_ptr<Stage>>& stages() const { return stages_; }
  const MeasuringClocks& clocks() const { return clocks_; }
  GroupPlace place() const { return rank_->place(); }
  // Positions that the loss counts, of the micro-batch that is prepared.
  int64_t loss_tokens() const { return tokens_.labels.defined() ? tokens_.labels.size(0) : 0; }

  // Before the passes of a micro-batch. Of several context ranks the one of this run has all rows of a shape
  // without spans. Possible errors: RESOURCE_EXHAUSTED (memory), INTERNAL.
  absl::Status Prepare(const MicroBatch& given);
  // The one that is prepared, with the next of the stages; of a GPU with some in a row, and the mean counts.
  // The forward pass of a stage that embeds tokens, or has a loss, includes its LOAD, which takes no time in
  // a plan (execution.md, section 7). Possible errors: those of the passes.
  absl::StatusOr<PassTimes> Once(const PassKind& kind);
  // Whether the allocator of the device counts tensors, so that there are bytes to tell.
  bool CountsBytes() const;
  // Of the micro-batch that is prepared, on the next of the stages, which is neither the first nor the last
  // of the model. Possible errors: those of the passes.
  absl::StatusOr<PassBytes> Bytes(const PassKind& kind);

 private:
  struct StageInFlight {
    Stage* stage = nullptr;
    // As LOAD leaves them for the stage.
    TokenBatch tokens = {};
    StageForward forward = {};
    SplitBackward::PutAside put_aside = {};
  };

  MicroBatch WithSpans(MicroBatch shape) const;
  absl::Status Load(StageInFlight& pass) const;
  absl::Status Forward(const LayerRecompute& recompute, StageInFlight& pass) const;
  absl::Status Backward(StageInFlight& pass) const;
  absl::Status BackwardInput(StageInFlight& pass) const;

  StageRun(const ModelConfig& config, const StageRange& range, std::unique_ptr<LoneRank> rank,
           at::Device place, MeasuringClocks clocks, std::vector<std::unique_ptr<Stage>> stages);

  // Bytes of the encoder's output in the input of a T5's decoder layer; else 0.
  double PassedOnBytes() const;
  // What crosses the boundary before `layer`.
  at::Tensor Activation(const MicroBatch& shape, int64_t layer) const;

  ModelConfig config_;
  StageRange range_;
  // Outlives the stages.
  std::unique_ptr<LoneRank> rank_;
  at::Device place_;
  MeasuringClocks clocks_;
  size_t passes_in_a_row_;
  std::vector<std::unique_ptr<Stage>> stages_;
  size_t turn_ = 0;
  // What is prepared.
  MicroBatch shape_;
  // On the host, as the thread that reads ahead leaves them.
  TokenBatch staged_;
  TokenBatch tokens_;
  at::Tensor input_;
  at::Tensor output_gradient_;
};

struct Turn {
  StageRun* run = nullptr;
  PassKind kind = {};
};

// Medians for each of the turns, of the rounds that fit into `budget_ns`; at least one round. The first one
// warms up, and counts where passes take so long that this makes no difference. What slows the machine for a
// while slows all of them. All runs are prepared for one shape.
absl::StatusOr<std::vector<PassTimes>> MeasureInTurns(absl::Span<const Turn> turns, double budget_ns);

}  // namespace penstock::worker
