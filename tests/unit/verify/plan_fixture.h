// Valid plans for the checker's tests, written by the text of the contract and without any code of the
// planner.
//
//   v1::PlannedBatch planned = MakeValidPlan({.pipeline = 2, .replicas = 2, .micro_batches = 3});
#pragma once

#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

struct FixtureOptions {
  int pipeline = 2;
  int replicas = 2;
  int micro_batches = 3;
  // Stage s is at position s % pipeline.
  int stages_per_rank = 1;
  int samples_per_micro_batch = 2;
  v1::Layout layout = v1::LAYOUT_PADDED;
  v1::Architecture architecture = v1::ARCHITECTURE_GPT;
  bool split_backward = false;
};

// All forward passes, then all backward passes, one at a time over the whole replica.
v1::PlannedBatch MakeValidPlan(const FixtureOptions& options);

// Gives a plan that was changed times, predictions and hash that agree with it. The others leave times, or
// times and predictions, as they are.
void Seal(v1::Plan* plan);
void SealTimes(v1::Plan* plan);
void SealHash(v1::Plan* plan);

// The most that a program holds when it runs in its own order, bytes.
int64_t PeakOf(const v1::Program& program);

// The instruction with this key; fails the test if there is none.
v1::Instruction& Find(v1::Plan& plan, int rank, v1::Op op, uint32_t micro_batch, uint32_t part = 0,
                      int stage = -1);

// Puts the instructions of the rank in the order of `ids` (old ids; those left out are removed) and renumbers
// all references. Deps on removed instructions vanish.
void Rearrange(v1::Plan& plan, int rank, const std::vector<uint32_t>& ids);
void Remove(v1::Plan& plan, int rank, uint32_t id);
// Moves an instruction so that it comes just before another one.
void MoveBefore(v1::Plan& plan, int rank, uint32_t id, uint32_t before);

}  // namespace penstock::core
