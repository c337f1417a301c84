#include "planner/core/footprint/planning_footprint.h"

#include <algorithm>
#include <cmath>

namespace penstock::core {
namespace {

// Of the search, for each micro-batch of a start that has a table, for each of its stages and for each
// further context rank.
constexpr double kSlotBytes = 500;
constexpr double kSlotStageBytes = 175;
constexpr double kSlotContextBytes = 600;
// For each micro-batch of any start, and for each sample, which all starts name.
constexpr double kGroupBytes = 60;
constexpr double kStartSampleBytes = 290;
// As planner/core/search/dynamic_policy.cc: micro-batches whose tables are held side by side. Then those of
// starts that are kept, in numbers of micro-batches of the plan.
constexpr double kMicroBatchesSideBySide = 32'768;
constexpr double kKeptStarts = 4;
// For each instruction: of the programs, their simulation, the plan as a message and its check together; more
// where few replicas share them, whose arrays are copied as they grow.
constexpr double kInstructionBytes = 430;
constexpr double kInstructionBytesOfReplica = 90;
// Of the plan that is kept, whose instructions are in columns: for each instruction, rank, micro-batch, stage
// of a micro-batch, and sample.
constexpr double kKeptInstructionBytes = 7;
constexpr double kKeptRankBytes = 1600;
constexpr double kKeptMicroBatchBytes = 320;
constexpr double kKeptMicroBatchStageBytes = 40;
constexpr double kKeptSampleBytes = 20;
// Instructions for each micro-batch and stage, less those that the first stage and the last lack together:
// nothing comes in at the one and goes out at the other. Then for each rank beside them.
constexpr double kInstructions = 13;
constexpr double kEndsLack = 7;
constexpr double kRankInstructions = 4;
// Of messages: in full, and compact.
constexpr double kInstructionMessageBytes = 48;
constexpr double kSampleMessageBytes = 30;
constexpr double kCompactInstructionBytes = 7;
constexpr double kCompactSampleBytes = 10;
constexpr double kCompactMicroBatchBytes = 24;
constexpr double kCompactProgramBytes = 1200;
constexpr double kSampleBytes = 160;
// What is taken however small the batch is.
constexpr double kLeastBytes = 5.5e6;
// Search and programs follow each other: of the lesser of both this share is there beside the other.
constexpr double kLesserShare = 0.1;
// Above what was measured.
constexpr double kMargin = 1.1;
// As planner/core/search/starts.cc: micro-batches of a replica that are tried at least, the step from one
// number to the next, and the starts of each number.
constexpr double kManyMicroBatches = 64;
constexpr double kRoomyMultiple = 1.5;
constexpr double kCountStep = 1.35;
constexpr double kStartsOfACount = 1.6;
// Micro-batches of a replica that plans were found to have at most: so many, or so many times what is roomy,
// less in a deep pipeline: divided by this power of how deep it is.
constexpr double kFewMicroBatches = 24;
constexpr double kFewest = 2;
constexpr double kSamplesForOneMore = 16;
constexpr double kPlanRoomyMultiple = 0.92;
constexpr double kShallow = 4;
constexpr double kDepthPower = 0.6;
// Of policies that do not search; and what is roomy where so few of the longest sample fit into a micro-batch
// that it has one of them less.
constexpr double kPlainDepthPower = 0.4;
constexpr double kFewOfLongest = 4;
// Not where samples are so many times as many as the longest would be: then a micro-batch is filled up with
// others.
constexpr double kUneven = 1.5;
// Where context ranks divide samples: as many micro-batches as are roomy, however deep the pipeline is.
constexpr double kPlanRoomyOfContext = 1;

// Of all replicas: a number that is not exceeded by the starts but for packing to a cap.
double MostMicroBatches(const PlanningShape& shape) {
  const double of_replica = std::max(kManyMicroBatches, kRoomyMultiple * shape.roomy);
  return std::min(static_cast<double>(shape.samples), of_replica * static_cast<double>(shape.replicas));
}

// Of all starts together.
double StartMicroBatches(const PlanningShape& shape) {
  const double samples = static_cast<double>(shape.samples);
  // They try micro-batches of one sample, too.
  if (!shape.searches) return samples;
  return samples + kStartsOfACount * MostMicroBatches(shape) / (1 - 1 / kCountStep) + shape.packed;
}

// Micro-batches that hold a whole number of the longest sample, of policies that do not search; 0 where they
// hold many, or others besides.
double OfWholeLongest(const PlanningShape& shape) {
  if (shape.roomy <= 0 || static_cast<double>(shape.samples) > kUneven * shape.longest_fill) return 0;
  const double fits = shape.longest_fill / (shape.roomy * static_cast<double>(shape.replicas));
  return fits < kFewOfLongest ? shape.longest_fill / std::max(1.0, std::floor(fits)) : 0;
}

double PlanMicroBatches(const PlanningShape& shape) {
  const double samples = static_cast<double>(shape.samples);
  if (shape.micro_batch_size > 0) return std::ceil(samples / static_cast<double>(shape.micro_batch_size));
  const double depth = std::max(1.0, static_cast<double>(shape.positions) / kShallow);
  const double of_replica_samples = samples / static_cast<double>(shape.replicas);
  const double few = std::min(kFewMicroBatches, kFewest + of_replica_samples / kSamplesForOneMore);
  const double roomy = shape.context > 1
                           ? kPlanRoomyOfContext * shape.roomy
                           : kPlanRoomyMultiple * shape.roomy /
                                 std::pow(depth, shape.searches ? kDepthPower : kPlainDepthPower);
  const double all = std::max(few, roomy) * static_cast<double>(shape.replicas);
  return std::min(samples, shape.searches ? all : std::max(all, OfWholeLongest(shape)));
}

// `plan`: micro-batches that the plan will have.
double SearchBytes(const PlanningShape& shape, double plan) {
  const double samples = static_cast<double>(shape.samples);
  const double all = StartMicroBatches(shape);
  const double with_tables =
      shape.searches
          ? std::min(all, std::max(kMicroBatchesSideBySide, samples) + kKeptStarts * std::min(samples, plan))
          : all;
  const double context_ranks = static_cast<double>(std::max<int64_t>(1, shape.context));
  const double of_slot = kSlotBytes + kSlotStageBytes * static_cast<double>(shape.stages) +
                         kSlotContextBytes * (context_ranks - 1);
  return with_tables * of_slot + all * kGroupBytes + samples * kStartSampleBytes;
}

int64_t Bytes(double bytes) { return static_cast<int64_t>(std::min(kMargin * bytes, 9e18)); }

}  // namespace

PlanningFootprint FootprintOf(const PlanningShape& shape) {
  const double samples = static_cast<double>(shape.samples);
  const double ranks = static_cast<double>(shape.positions * shape.group);
  const double replicas = static_cast<double>(shape.replicas);
  const double micro_batches = PlanMicroBatches(shape);
  const double stages_of_rank = static_cast<double>(shape.stages) / static_cast<double>(shape.positions);
  // Of the rank that has most, and of all.
  const double of_rank = kInstructions * stages_of_rank * micro_batches;
  const double of_group = (kInstructions * static_cast<double>(shape.stages) - kEndsLack) * micro_batches;
  const double instructions =
      of_group * static_cast<double>(shape.group) + kRankInstructions * ranks * replicas;
  const double search = SearchBytes(shape, micro_batches);
  const double programs =
      (kInstructionBytes + kInstructionBytesOfReplica / (replicas * replicas)) * instructions +
      kSampleBytes * samples;
  const double rank_share = std::min(1.0, 1.25 / replicas);
  PlanningFootprint footprint;
  footprint.micro_batches = static_cast<int64_t>(micro_batches);
  footprint.planning_bytes = std::max(kFewestPlanningBytes, Bytes(kLeastBytes + std::max(search, programs) +
                                                                  kLesserShare * std::min(search, programs)));
  const double all_ranks = ranks * replicas;
  const double stages = static_cast<double>(shape.stages);
  footprint.plan_bytes = Bytes(kKeptInstructionBytes * instructions + kKeptRankBytes * all_ranks +
                               (kKeptMicroBatchBytes + kKeptMicroBatchStageBytes * stages) * micro_batches +
                               kKeptSampleBytes * samples);
  footprint.plan_message_bytes = footprint.plan_bytes;
  footprint.program_message_bytes =
      Bytes(kCompactProgramBytes +
            rank_share * (kCompactInstructionBytes * of_rank + kCompactMicroBatchBytes * micro_batches +
                          kCompactSampleBytes * samples));
  footprint.full_plan_message_bytes =
      Bytes(kInstructionMessageBytes * instructions + kSampleMessageBytes / 3 * samples);
  return footprint;
}

PlanningShape WithSamples(PlanningShape shape, int64_t samples) {
  const double scale =
      static_cast<double>(samples) / static_cast<double>(std::max<int64_t>(1, shape.samples));
  shape.samples = samples;
  shape.roomy *= scale;
  shape.longest_fill *= scale;
  shape.packed *= scale;
  return shape;
}

bool Fits(const PlanningFootprint& footprint, const PlanningRoom& room) {
  return footprint.planning_bytes <= room.planning_bytes && footprint.plan_bytes <= room.plan_bytes &&
         footprint.plan_message_bytes <= room.plan_message_bytes &&
         footprint.program_message_bytes <= room.program_message_bytes &&
         footprint.full_plan_message_bytes <= room.full_plan_message_bytes;
}

int64_t MostSamples(const PlanningShape& shape, const PlanningRoom& room) {
  int64_t fits = 0;
  int64_t above = shape.samples + 1;
  while (above - fits > 1) {
    const int64_t middle = fits + (above - fits) / 2;
    (Fits(FootprintOf(WithSamples(shape, middle)), room) ? fits : above) = middle;
  }
  return fits;
}

}  // namespace penstock::core
