// One replica's pipeline as flat arrays: what its micro-batches cost on each stage, and in which order each
// stage runs its passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::core {

// Micro-batches are numbered in the order in which they enter the pipeline. All arrays are [micro_batch *
// stages + stage].
struct PipelineCosts {
  int stages = 0;
  int micro_batches = 0;
  std::vector<int64_t> forward_ns;
  std::vector<int64_t> backward_ns;
  // Of the activation that leaves the stage, and of its gradient that comes back; 0 on the last stage.
  std::vector<int64_t> transfer_ns;

  void Resize(int new_stages, int new_micro_batches) {
    stages = new_stages;
    micro_batches = new_micro_batches;
    const size_t size = static_cast<size_t>(stages) * micro_batches;
    forward_ns.resize(size);
    backward_ns.resize(size);
    transfer_ns.resize(size);
  }
  size_t at(int micro_batch, int stage) const { return static_cast<size_t>(micro_batch) * stages + stage; }
};

// Order of the passes of every stage: forwards_before[stage * micro_batches + j] forward passes run before
// the backward pass of micro-batch j. Passes of a kind run in the order of micro-batches.
//
// A stage may never be ahead of the one before it: forwards_before is non-increasing in the stage. With that
// no stage waits in a circle (see docs of MakeOneForwardOneBackward).
struct PassOrder {
  std::vector<int32_t> forwards_before;
};

}  // namespace penstock::core
