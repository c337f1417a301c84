// Faults that are planted in simulated steps of planned batches of very different lengths: each is found and
// named.
#include "planner/core/diagnose/diagnose.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "common/process/sanitized.h"
#include "planner/core/diagnose/replay_graph.h"
#include "planner/core/planner.h"
#include "planner/core/replay/program_set_of_plan.h"
#include "planner/core/simulate/simulator.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

constexpr int kSteps = 3;
constexpr double kNoise = 0.02;

enum Name : int32_t {
  kForwardName,
  kBackwardName,
  kSendName,
  kReceiveName,
  kSendBackName,
  kReceiveBackName,
  kReduceName,
  kStepName,
  kBackwardInputName,
  kBackwardWeightName
};

// What an instruction of a rank takes instead of what was planned.
using Fault = std::function<double(int rank, const Instruction& instruction, double duration_ns)>;

// What the host of a rank takes after an instruction, which no trace shows.
using HostFault = std::function<int64_t(int rank, const Instruction& instruction)>;

// A timeline of planned steps on simulated ranks, whose passes all have some noise.
class SimulatedRun {
 public:
  SimulatedRun(int stages, int replicas, uint64_t seed, const Fault& fault, bool known_work = false,
               HostFault host_fault = nullptr)
      : random_(seed), known_work_(known_work), host_fault_(std::move(host_fault)) {
    const v1::JobSpec job = GptJob(stages, replicas, v1::POLICY_DYNAMIC);
    const auto planner = Planner::Create(job);
    EXPECT_TRUE(planner.ok()) << planner.status();
    timeline_.stages = stages;
    timeline_.replicas = replicas;
    timeline_.names = {"forward-compute", "backward-compute", "forward-send", "forward-recv",
                       "backward-send",   "backward-recv",    "grads-reduce", "optimizer",
                       "backward-input",  "backward-weight"};
    for (int step = 0; step < kSteps; ++step) Run(**planner, step, fault);
  }

  const Timeline& timeline() const { return timeline_; }

 private:
  v1::Batch RandomBatch(int step) {
    std::lognormal_distribution<double> length(3.5, 1.0);
    std::vector<std::pair<uint32_t, uint32_t>> lengths;
    for (int i = 0; i < 16 * timeline_.replicas; ++i)
      lengths.emplace_back(0, 1 + static_cast<uint32_t>(std::min(length(random_), 300.0)));
    v1::Batch batch = MakeBatch(lengths);
    batch.set_iteration(step);
    return batch;
  }

  void Run(const Planner& planner, int step, const Fault& fault) {
    const auto plan = planner.MakePlan(RandomBatch(step));
    ASSERT_TRUE(plan.ok()) << plan.status();
    ProgramSet programs = *ProgramSetOfPlan(*plan);
    const std::vector<Instruction> planned = programs.instructions;
    std::vector<int64_t> host_ns(planned.size(), 0);
    std::normal_distribution<double> noise(0.0, kNoise);
    for (int rank = 0; rank < programs.ranks(); ++rank) {
      for (int32_t i = programs.rank_begin[rank]; i < programs.rank_begin[rank + 1]; ++i) {
        Instruction& instruction = programs.instructions[i];
        double duration = fault(rank, instruction, static_cast<double>(instruction.duration_ns));
        if (IsPass(instruction.op)) duration *= std::exp(noise(random_));
        if (host_fault_) host_ns[i] = host_fault_(rank, instruction);
        instruction.duration_ns = std::llround(duration) + host_ns[i];
      }
    }
    Simulator simulator;
    ASSERT_TRUE(simulator.Run(programs).ok());
    timeline_.places.clear();
    timeline_.rank_numbers.clear();
    timeline_.steps.emplace_back().number = step;
    for (int rank = 0; rank < programs.ranks(); ++rank) {
      const RankPlace place = planner.costs().topology().PlaceOf(rank);
      timeline_.places.push_back({.stage = place.position, .replica = place.replica});
      timeline_.rank_numbers.push_back(rank);
      const int32_t begin = programs.rank_begin[rank];
      int64_t stream_ns[kStreams] = {};
      for (int32_t i = begin; i < programs.rank_begin[rank + 1]; ++i) {
        const Instruction& instruction = programs.instructions[i];
        // A rank sees a transfer begin when it comes to it, and not when the other one does.
        int64_t& start = stream_ns[static_cast<int>(instruction.stream)];
        for (int32_t dep = instruction.deps_begin; dep < instruction.deps_end; ++dep)
          start = std::max(start, simulator.end_ns()[begin + programs.deps[dep]]);
        Record(rank, instruction, planned[i].duration_ns, start, simulator.end_ns()[i] - host_ns[i]);
        start = simulator.end_ns()[i];
      }
    }
  }

  void Record(int rank, const Instruction& instruction, int64_t planned_ns, int64_t start_ns,
              int64_t end_ns) {
    Operation operation = {.rank = rank, .start_ns = start_ns, .duration_ns = end_ns - start_ns};
    const bool gradient = instruction.part == kGradientPart;
    switch (instruction.op) {
      case Op::kForward:
        operation.kind = OperationKind::kForward;
        operation.name = kForwardName;
        break;
      case Op::kBackward:
        operation.kind = OperationKind::kBackward;
        operation.name = kBackwardName;
        break;
      case Op::kBackwardInput:
        operation.kind = OperationKind::kBackwardInput;
        operation.name = kBackwardInputName;
        break;
      case Op::kBackwardWeight:
        operation.kind = OperationKind::kBackwardWeight;
        operation.name = kBackwardWeightName;
        break;
      case Op::kSend:
        operation.kind = gradient ? OperationKind::kSendBackward : OperationKind::kSendForward;
        operation.name = gradient ? kSendBackName : kSendName;
        break;
      case Op::kRecv:
        operation.kind = gradient ? OperationKind::kReceiveBackward : OperationKind::kReceiveForward;
        operation.name = gradient ? kReceiveBackName : kReceiveName;
        break;
      case Op::kReduceGradients:
        operation.kind = OperationKind::kCollective;
        operation.name = kReduceName;
        break;
      case Op::kOptimizerStep:
        operation.name = kStepName;
        break;
      default:
        return;
    }
    if (instruction.op != Op::kReduceGradients && instruction.op != Op::kOptimizerStep) {
      operation.micro_batch = instruction.micro_batch;
      operation.model_stage = instruction.stage;
    }
    operation.number = counts_[{static_cast<int32_t>(timeline_.steps.size()), rank, operation.name}]++;
    if (known_work_ && (IsPassKind(operation.kind) || IsTransferKind(operation.kind)))
      operation.expected_ns = planned_ns;
    timeline_.steps.back().operations.push_back(operation);
  }

  std::mt19937_64 random_;
  bool known_work_;
  HostFault host_fault_;
  Timeline timeline_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> counts_;
};

double Unchanged(int, const Instruction&, double duration) { return duration; }

Fault SlowRankFault(int slow, double factor) {
  return [=](int rank, const Instruction& instruction, double duration) {
    return rank == slow && IsPass(instruction.op) ? duration * factor : duration;
  };
}

Diagnosis DiagnosisOf(const SimulatedRun& run) {
  auto diagnosis = Diagnose(run.timeline());
  EXPECT_TRUE(diagnosis.ok()) << diagnosis.status();
  return diagnosis.ok() ? *std::move(diagnosis) : Diagnosis();
}

const Cause* Find(const Diagnosis& diagnosis, CauseKind kind) {
  for (const Cause& cause : diagnosis.causes) {
    if (cause.kind == kind) return &cause;
  }
  return nullptr;
}

TEST(ReplayGraphTest, FinishesWithTheLongestPathAndNamesIt) {
  ReplayGraph graph;
  const int32_t begin = graph.Add({}, -1);
  const int32_t one = graph.Add({begin}, 0);
  const int32_t other = graph.Add({begin}, 1);
  graph.Add({one, other}, 2);
  ASSERT_TRUE(graph.Order().ok());
  EXPECT_EQ(graph.Finish({5, 7, 3}), 10);
  EXPECT_EQ(graph.CriticalPath({5, 7, 3}), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(graph.Finish({9, 7, 3}), 12);
  graph.WaitFor(one, 3);
  EXPECT_FALSE(graph.Order().ok());
}

TEST(DiagnoseTest, AReplayTakesAsLongAsTheStep) {
  for (uint64_t seed = 0; seed < 5; ++seed)
    EXPECT_LT(DiagnosisOf(SimulatedRun(4, 2, seed, Unchanged)).replay_error, 0.02);
}

TEST(DiagnoseTest, HealthyRunsNameNoRankAndNoLink) {
  for (uint64_t seed = 0; seed < (kSanitized ? 6 : 20); ++seed) {
    const Diagnosis diagnosis =
        DiagnosisOf(SimulatedRun(2 + seed % 3, 1 + seed % 4, seed, Unchanged, seed % 2 == 0));
    for (const Cause& cause : diagnosis.causes) {
      // Plans recompute more on the first stages, which a trace cannot tell from more layers.
      if (seed % 2 == 1 && cause.kind == CauseKind::kStageSplit) continue;
      EXPECT_EQ(cause.kind, CauseKind::kUnequalWork)
          << static_cast<int>(cause.kind) << " of rank " << cause.rank << ", stage " << cause.stage
          << ", factor " << cause.factor << " +- " << cause.uncertainty << ", gains " << cause.gain
          << ", seed " << seed;
    }
  }
}

// Lengths differ from micro-batch to micro-batch by more than a slow rank does.
TEST(DiagnoseTest, ASlowRankAtARandomPlaceIsNamed) {
  constexpr int kRuns = kSanitized ? 20 : 200;
  std::mt19937_64 random(11);
  int named = 0;
  double worst = 0;
  for (int i = 0; i < kRuns; ++i) {
    const int stages = 1 + static_cast<int>(random() % 4), replicas = 2 + static_cast<int>(random() % 3);
    const int slow = static_cast<int>(random() % (stages * replicas));
    const double factor = 1.1 + 0.9 * static_cast<double>(random() % 1000) / 1000;
    const SimulatedRun run(stages, replicas, random(), SlowRankFault(slow, factor), /*known_work=*/true);
    const Diagnosis diagnosis = DiagnosisOf(run);
    const bool is_named = diagnosis.causes.size() > 0 && diagnosis.causes[0].kind == CauseKind::kSlowRank &&
                          diagnosis.causes[0].rank == slow;
    named += is_named;
    if (is_named) worst = std::max(worst, std::abs(diagnosis.causes[0].factor / factor - 1));
  }
  EXPECT_GE(named, kRuns * 99 / 100);
  EXPECT_LT(worst, 0.05);
}

// Nobody says how long the samples are: the other stages tell, which compute the same micro-batches.
TEST(DiagnoseTest, ASlowRankIsToldFromLongSamplesByTheOtherStages) {
  constexpr int kRuns = kSanitized ? 10 : 60;
  std::mt19937_64 random(12);
  int named = 0;
  for (int i = 0; i < kRuns; ++i) {
    const int stages = 2 + static_cast<int>(random() % 3), replicas = 3 + static_cast<int>(random() % 2);
    const int slow = static_cast<int>(random() % (stages * replicas));
    const SimulatedRun run(stages, replicas, random(), SlowRankFault(slow, 1.3));
    const Diagnosis diagnosis = DiagnosisOf(run);
    const Cause* const cause = Find(diagnosis, CauseKind::kSlowRank);
    named += cause != nullptr && cause->rank == slow;
  }
  EXPECT_GE(named, kRuns * 99 / 100);
}

// What mending a cause is said to bring is what it brings.
TEST(DiagnoseTest, GainsAreWhatMendingBrings) {
  for (const double factor : {1.3, 2.0}) {
    const Diagnosis slow = DiagnosisOf(SimulatedRun(4, 2, 5, SlowRankFault(3, factor), true));
    const Diagnosis mended = DiagnosisOf(SimulatedRun(4, 2, 5, Unchanged, true));
    const Cause* const cause = Find(slow, CauseKind::kSlowRank);
    ASSERT_NE(cause, nullptr);
    const double brings = 1 - mended.measured_ns / slow.measured_ns;
    EXPECT_NEAR(cause->gain, brings, 0.25 * brings);
  }
}

TEST(DiagnoseTest, ASlowLinkIsNamed) {
  const SimulatedRun run(4, 2, 6, [](int rank, const Instruction& instruction, double duration) {
    // From rank 1 to rank 2, both ends and directions.
    const bool link = (rank == 1 && instruction.stream == Stream::kNext) ||
                      (rank == 2 && instruction.stream == Stream::kPrevious);
    return link ? duration * 50 : duration;
  });
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kSlowLink);
  EXPECT_EQ(std::minmax(diagnosis.causes[0].rank, diagnosis.causes[0].peer), std::minmax(1, 2));
}

TEST(DiagnoseTest, ASlowRingIsNamed) {
  const auto slow_ring = [](int rank, const Instruction& instruction, double duration) {
    (void)rank;
    const bool ring = instruction.op == Op::kReduceGradients && instruction.stage == 2;
    return ring ? duration * 50 : duration;
  };
  const Diagnosis slow = DiagnosisOf(SimulatedRun(4, 2, 6, slow_ring));
  ASSERT_FALSE(slow.causes.empty());
  EXPECT_EQ(slow.causes[0].kind, CauseKind::kSlowRing);
  EXPECT_EQ(slow.causes[0].ring, (std::vector<int32_t>{2, 6}));
  const double brings = 1 - DiagnosisOf(SimulatedRun(4, 2, 6, Unchanged)).measured_ns / slow.measured_ns;
  EXPECT_NEAR(slow.causes[0].gain, brings, 0.25 * brings);
}

TEST(DiagnoseTest, AStageWithMoreWorkIsNamed) {
  const SimulatedRun run(4, 3, 7, [](int rank, const Instruction& instruction, double duration) {
    (void)rank;
    return IsPass(instruction.op) && instruction.stage == 3 ? duration * 2 : duration;
  });
  const Diagnosis diagnosis = DiagnosisOf(run);
  const Cause* const cause = Find(diagnosis, CauseKind::kStageSplit);
  ASSERT_NE(cause, nullptr);
  EXPECT_EQ(cause->stage, 3);
  EXPECT_EQ(Find(diagnosis, CauseKind::kSlowRank), nullptr);
}

TEST(DiagnoseTest, PassesThatStallAreNamed) {
  std::mt19937_64 random(3);
  const SimulatedRun run(
      3, 2, 8,
      [&](int rank, const Instruction& instruction, double duration) {
        return rank == 4 && IsPass(instruction.op) && random() % 8 == 0 ? duration * 6 : duration;
      },
      /*known_work=*/true);
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kStalledPasses);
  EXPECT_EQ(diagnosis.causes[0].rank, 4);
}

TEST(DiagnoseTest, AHostThatStallsIsNamed) {
  std::mt19937_64 random(4);
  const SimulatedRun run(3, 2, 9, Unchanged, /*known_work=*/true,
                         [&](int rank, const Instruction& instruction) {
                           return rank == 2 && IsPass(instruction.op) && random() % 4 == 0 ? 10'000 : 0;
                         });
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kHostStalls);
  EXPECT_EQ(diagnosis.causes[0].rank, 2);
}

TEST(DiagnoseTest, ARankThatBeginsLateIsNamed) {
  const SimulatedRun run(
      2, 3, 10, Unchanged, /*known_work=*/true, [](int rank, const Instruction& instruction) {
        return rank == 4 && instruction.op == Op::kLoad && instruction.micro_batch == 0 ? 20'000 : 0;
      });
  const Diagnosis diagnosis = DiagnosisOf(run);
  ASSERT_FALSE(diagnosis.causes.empty());
  EXPECT_EQ(diagnosis.causes[0].kind, CauseKind::kLateStart);
  EXPECT_EQ(diagnosis.causes[0].rank, 4);
}

TEST(DiagnoseTest, ATimelineWithoutStepsIsRefused) { EXPECT_FALSE(Diagnose(Timeline()).ok()); }

}  // namespace
}  // namespace penstock::core
