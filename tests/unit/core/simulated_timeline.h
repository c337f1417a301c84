// Timelines of planned batches of very different lengths on simulated ranks, with faults that are planted in
// them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/core/diagnose/diagnose.h"
#include "planner/core/planner.h"
#include "planner/core/replay/program_set_of_plan.h"
#include "planner/core/simulate/simulator.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {

inline constexpr int kSteps = 3;
inline constexpr double kNoise = 0.02;

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
  // For what a plan does not say.
  Timeline& timeline() { return timeline_; }

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

inline double Unchanged(int, const Instruction&, double duration) { return duration; }

inline Fault SlowRankFault(int slow, double factor) {
  return [=](int rank, const Instruction& instruction, double duration) {
    return rank == slow && IsPass(instruction.op) ? duration * factor : duration;
  };
}

inline Diagnosis DiagnosisOf(const SimulatedRun& run) {
  auto diagnosis = Diagnose(run.timeline());
  EXPECT_TRUE(diagnosis.ok()) << diagnosis.status();
  return diagnosis.ok() ? *std::move(diagnosis) : Diagnosis();
}

inline const Cause* Find(const Diagnosis& diagnosis, CauseKind kind) {
  for (const Cause& cause : diagnosis.causes) {
    if (cause.kind == kind) return &cause;
  }
  return nullptr;
}

}  // namespace penstock::core
