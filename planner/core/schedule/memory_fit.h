// Makes a pipeline fit in memory: chooses recompute for each micro-batch and stage, and how far each stage
// may run ahead.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/cost/cost_model.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

// Micro-batches of one replica in the order in which they enter the pipeline. Arrays as in PipelineCosts.
struct PipelineMemory {
  int stages = 0;
  int micro_batches = 0;
  std::vector<StageMemory> memory;
};

struct MemoryFitOptions {
  // AUTO starts from no recompute and adds the least that fits.
  RecomputeMode mode = RecomputeMode::kAuto;
  // AUTO: rather run less far ahead than recompute.
  bool prefer_waiting = false;
  // Never more than one micro-batch in the pipeline: what needs least memory.
  bool serial = false;
  // Of each stage: bytes that micro-batches may take.
  std::vector<int64_t> available_bytes;
};

// Levels that a layer may be moved to, and what it starts from.
StageRecompute InitialRecompute(const Stage& stage, RecomputeMode mode);

// Fills `recompute` (arrays as in PipelineCosts) and `order`. The account is conservative: it counts transfer
// buffers of the neighbours of each micro-batch as if all were alive together. False when a micro-batch does
// not fit even alone.
bool FitMemory(const CostModel& costs, const PipelineMemory& pipeline, const MemoryFitOptions& options,
               std::vector<StageRecompute>* recompute, PassOrder* order);

// What a micro-batch holds on a stage between its forward and backward pass.
int64_t HeldBytes(const CostModel& costs, int stage, const StageMemory& memory,
                  const StageRecompute& recompute);

// What comes and goes around its passes: the transient peak, the gradients of its backward pass, its output
// until it is sent, and the same buffers of a neighbour that is early or late.
int64_t PassingBytes(const StageMemory& memory);

}  // namespace penstock::core
