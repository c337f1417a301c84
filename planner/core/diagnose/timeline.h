// What ranks did and when, of any framework.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::core {

enum class OperationKind : uint8_t {
  kForward,
  // Also the whole of a backward pass.
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  kSendForward,
  kReceiveForward,
  kSendBackward,
  kReceiveBackward,
  // Of several ranks together: reductions, gathers.
  kCollective,
  // Everything else: an optimizer step, a collection of garbage.
  kLocal,
  // For the batch that the step trains on, or what is to be done with it, from its feeder.
  kBatchWait,
  // Only where the order is known: takes no time of its own, whatever it took.
  kWait,
};

inline bool IsPassKind(OperationKind kind) { return kind <= OperationKind::kBackwardWeight; }
inline bool IsTransferKind(OperationKind kind) {
  return kind >= OperationKind::kSendForward && kind <= OperationKind::kReceiveBackward;
}

struct Operation {
  int32_t rank = 0;
  OperationKind kind = OperationKind::kLocal;
  // Position in Timeline.names: what it is called. Operations of one name are compared with each other.
  int32_t name = 0;
  // The n-th of its name on its rank in its step.
  int32_t number = 0;
  // Of a pass; of a transfer where it is known; otherwise -1.
  int32_t micro_batch = -1;
  // Of a pass: the part of the model that it runs, which is the rank's stage unless ranks have several; of a
  // transfer the part that it leaves or comes to, -1 where that is not known.
  int32_t model_stage = -1;
  // By the clock of the rank; clocks may differ.
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  // Of a pass or a transfer: what was foreseen; 0 where nobody knows.
  int64_t expected_ns = 0;
  // Of a pass: for how much of its time its thread had a core, as far as that is known.
  double core_share = 1;
  // Of a pass of a stage group of several ranks, which wait for each other inside: what the rank computed,
  // and what was foreseen of that. 0: nobody knows it apart from its waiting.
  int64_t computed_ns = 0;
  int64_t expected_computed_ns = 0;

  int64_t end_ns() const { return start_ns + duration_ns; }
};

struct TimelineStep {
  int64_t number = 0;
  std::vector<Operation> operations;
  // Where the order is known: by operation, which others of its rank have to end before it begins. Otherwise
  // empty, and times tell.
  std::vector<std::vector<int32_t>> after;
};

// A rank's stage in its pipeline, and the pipeline.
struct TimelinePlace {
  int32_t stage = 0;
  int32_t replica = 0;
  // Of a stage group of several ranks, each of which has a pipeline of its own here: the replica that all of
  // them are. -1: it is the pipeline.
  int32_t group_replica = -1;

  int32_t named_replica() const { return group_replica >= 0 ? group_replica : replica; }
};

struct Timeline {
  int32_t stages = 0;
  int32_t replicas = 0;
  std::vector<std::string> names;
  // By rank: its place, and its number in the job (traces may leave ranks out).
  std::vector<TimelinePlace> places;
  std::vector<int32_t> rank_numbers;
  // By stage, where every rank has one and all layers are alike; otherwise empty.
  std::vector<int32_t> layers_of_stage;
  // In the order of their numbers.
  std::vector<TimelineStep> steps;
};

}  // namespace penstock::core
