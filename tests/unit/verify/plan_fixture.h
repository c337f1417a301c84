// Valid plans for the checker's tests, written by the text of the contract and without any code of the
// planner.
//
//   v1::PlannedBatch planned = MakeValidPlan({.pipeline = 2, .replicas = 2, .micro_batches = 3});
#pragma once

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

}  // namespace penstock::core
