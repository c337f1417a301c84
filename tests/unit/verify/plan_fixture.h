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
  // Of every stage group. Context ranks: rows are on spans of 1, 2, ... of them in turn; of a GPT alone.
  int context = 1;
  int tensor = 1;
  // Numbers of the ranks; empty: ascending, replica by replica, in each by position, in each by place.
  std::vector<int> rank_numbers = {};
  // Layers of each stage that are recomputed in full.
  int full_layers = 0;
};

// All forward passes, then all backward passes, one at a time over the whole replica.
v1::PlannedBatch MakeValidPlan(const FixtureOptions& options);

}  // namespace penstock::core
