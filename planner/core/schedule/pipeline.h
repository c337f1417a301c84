// One replica's pipeline as flat arrays: what its micro-batches cost on each stage, and in which order each
// stage runs its passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::core {

// Micro-batches are numbered in the order in which they enter the pipeline. All arrays of times are
// [micro_batch * stages + stage].
struct PipelineCosts {
  int stages = 0;
  int micro_batches = 0;
  // Ranks of the pipeline, and for each stage its position among them.
  int positions = 0;
  std::vector<int32_t> position_of_stage;
  std::vector<int64_t> forward_ns;
  // The whole backward pass; `weight_ns` of it may be run apart, as BACKWARD_WEIGHT.
  std::vector<int64_t> backward_ns;
  std::vector<int64_t> weight_ns;
  // Of the activation that leaves the stage, and of its gradient that comes back; 0 on the last stage and
  // where the next stage is on the same rank.
  std::vector<int64_t> transfer_ns;
  // Of the gradient, where a link is slow. Empty: the same.
  std::vector<int64_t> gradient_transfer_ns;
  // 0: passes come back. Else FORWARDs are all, and nothing else holds a stage up that is faster than the one
  // above it: its FORWARD waits until that one has begun the micro-batch so many before, so that so many
  // activations at most wait there for their turn.
  int32_t forward_ahead = 0;

  void Resize(int new_stages, int new_micro_batches) {
    stages = new_stages;
    micro_batches = new_micro_batches;
    const size_t size = static_cast<size_t>(stages) * micro_batches;
    forward_ns.resize(size);
    backward_ns.resize(size);
    weight_ns.resize(size);
    transfer_ns.resize(size);
  }
  int64_t TransferNs(int micro_batch, int stage, bool gradient) const {
    return (gradient && !gradient_transfer_ns.empty() ? gradient_transfer_ns
                                                      : transfer_ns)[at(micro_batch, stage)];
  }
  size_t at(int micro_batch, int stage) const { return static_cast<size_t>(micro_batch) * stages + stage; }
};

enum class PassKind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

// kBackward is the whole backward pass; a micro-batch has either it or the two others on a stage.
struct Pass {
  PassKind kind = PassKind::kForward;
  int32_t stage = 0;
  int32_t micro_batch = 0;
};

// What each rank of a pipeline runs, in order: rank r (its position in the pipeline) runs
// passes[rank_begin[r] .. rank_begin[r + 1]).
struct RankPasses {
  std::vector<int32_t> rank_begin;
  std::vector<Pass> passes;
};

}  // namespace penstock::core
