// What planning a batch takes: bytes of memory and of messages, known before anything is planned.
//
// Two things take memory, one after the other. The search has lists of all divisions of the batch that it
// begins with, and tables of every micro-batch and stage of those that it looks at side by side: so many
// micro-batches in all, or one start that is larger; the largest has a micro-batch for each sample. The
// programs then have about a dozen instructions for each micro-batch and rank of its replica. So what decides
// is how many micro-batches the starts have, and how many the plan will have: both follow from the memory
// that ranks have for micro-batches (`roomy`) and from how uneven the lengths are (`longest_fill`).
//
// The bytes are measured (tests/bench/planning_memory_bench.cc, docs/results/2026-11-25-planner-memory.md):
// never below what was measured there, and at most twice as much where that is above 16 MB, with 32 MB at
// least; of other shapes nearly always. It is no bound: who plans must be able to stop a plan that takes
// more.
#pragma once

#include <cstdint>

namespace penstock::core {

// What an estimate follows from.
struct PlanningShape {
  int64_t samples = 0;
  int64_t replicas = 1;
  int64_t stages = 1;
  int64_t positions = 1;
  // Ranks that hold a stage together, and those of them that divide tokens.
  int64_t group = 1;
  int64_t context = 1;
  // Micro-batches that a replica needs at least so that all that are in flight fit without recompute.
  double roomy = 0;
  // Micro-batches that the batch would make if each held as many tokens as the longest sample has.
  double longest_fill = 0;
  // Of the search's starts that pack to a cap (packed_starts.h).
  double packed = 0;
  // The policy searches divisions (dynamic), or has few.
  bool searches = true;
  // Samples of a micro-batch at least, as the job says or as was foreseen (foresee/foreseen_size.h); 0: not
  // known.
  int64_t micro_batch_size = 0;
};

struct PlanningFootprint {
  // Of the whole batch, as far as can be told.
  int64_t micro_batches = 0;
  // While it is planned and checked, at most.
  int64_t planning_bytes = 0;
  // Of the plan that is kept, in memory.
  int64_t plan_bytes = 0;
  // Of messages to who reads compact.proto: the plan (PlanBatch), and the largest program (StreamPrograms).
  int64_t plan_message_bytes = 0;
  int64_t program_message_bytes = 0;
  // Of the plan, to who does not.
  int64_t full_plan_message_bytes = 0;
};

// What is told of planning at least: how many micro-batches the plan of a small batch has is less sure.
inline constexpr int64_t kFewestPlanningBytes = 32'000'000;

PlanningFootprint FootprintOf(const PlanningShape& shape);

// The same lengths, more or fewer of them.
PlanningShape WithSamples(PlanningShape shape, int64_t samples);

// Limits of whoever plans, bytes.
struct PlanningRoom {
  int64_t planning_bytes = INT64_MAX;
  int64_t plan_bytes = INT64_MAX;
  int64_t plan_message_bytes = INT64_MAX;
  int64_t program_message_bytes = INT64_MAX;
  int64_t full_plan_message_bytes = INT64_MAX;
};

bool Fits(const PlanningFootprint& footprint, const PlanningRoom& room);

// The most samples of such lengths that fit; 0: none.
int64_t MostSamples(const PlanningShape& shape, const PlanningRoom& room);

}  // namespace penstock::core
