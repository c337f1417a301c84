#include "planner/core/timeline/timeline_of_iterations.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "planner/core/contract/passes.h"
#include "planner/core/contract/whole_iteration.h"
#include "planner/core/diagnose/timeline_builder.h"
#include "planner/core/timeline/aligned_times.h"
#include "planner/core/timeline/computed_time.h"
#include "planner/core/timeline/core_shares.h"
#include "planner/core/timeline/operation_of_instruction.h"
#include "planner/core/timeline/slow_factors.h"

namespace penstock::core {
namespace {

// What a rank did of its program in an iteration.
class RankRecords {
 public:
  struct Look {
    // By what the plan's costs say that ranks are slow.
    const std::vector<double>& slow_factors;
    double core_share = 1;
    BatchWait wait;
  };

  RankRecords(const v1::Plan& plan, int rank, const Look& look, const std::vector<InstructionTime>& times)
      : plan_(plan), program_(plan.programs(rank)), look_(look), times_(times) {
    arrivals_ns_.resize(program_.instructions_size(), 0);
    for (const InstructionTime& time : times_) {
      if (!Has(time)) continue;
      const v1::Instruction& instruction = InstructionOf(time);
      if (IsArrival(program_, instruction) && time.duration_ns > kShortestWaitNs)
        arrivals_ns_[instruction.transfer_id()] = time.start_ns + time.duration_ns;
    }
  }

  absl::Status AddTo(TimelineBuilder& builder) const {
    if (look_.wait.duration_ns > 0) PENSTOCK_RETURN_IF_ERROR(builder.Add(Wait()));
    for (const InstructionTime& time : times_) {
      if (Has(time)) PENSTOCK_RETURN_IF_ERROR(builder.Add(RecordOf(time)));
    }
    return absl::OkStatus();
  }

 private:
  bool Has(const InstructionTime& time) const {
    return time.id < static_cast<uint32_t>(program_.instructions_size());
  }
  const v1::Instruction& InstructionOf(const InstructionTime& time) const {
    return program_.instructions(static_cast<int>(time.id));
  }

  OperationRecord Wait() const {
    return {.rank = program_.rank(),
            .replica = program_.replica(),
            .stage = PositionOf(program_),
            .step = static_cast<int64_t>(plan_.iteration()),
            .name = kBatchWaitName,
            .start_ns = look_.wait.start_ns,
            .duration_ns = look_.wait.duration_ns};
  }

  OperationRecord RecordOf(const InstructionTime& time) const {
    const v1::Instruction& instruction = InstructionOf(time);
    OperationRecord record = {.rank = program_.rank(),
                              .replica = program_.replica(),
                              .stage = PositionOf(program_),
                              .step = static_cast<int64_t>(plan_.iteration()),
                              .name = OperationName(instruction),
                              .model_stage = instruction.stage(),
                              .start_ns = time.start_ns,
                              .duration_ns = time.duration_ns,
                              .expected_ns = ExpectedNs(instruction),
                              .id = time.id,
                              .stream = StreamOf(instruction)};
    if (IsLonePass(instruction)) record.core_share = look_.core_share;
    const double slow_factor = look_.slow_factors[program_.rank()];
    if (const auto computed = ComputedTimeOf(plan_, program_, instruction, time, slow_factor)) {
      record.computed_ns = computed->ns;
      record.expected_computed_ns = computed->expected_ns;
    }
    if (!IsOfWholeIteration(instruction.op())) record.micro_batch = instruction.micro_batch();
    if (instruction.op() == v1::OP_RECV)
      record.duration_ns = std::max(record.duration_ns, arrivals_ns_[time.id] - time.start_ns);
    record.after.assign(instruction.deps().begin(), instruction.deps().end());
    return record;
  }

  // As though no rank were slow.
  int64_t ExpectedNs(const v1::Instruction& instruction) const {
    const int64_t expected_ns = instruction.expected_duration_ns();
    if (!IsPass(instruction.op())) return expected_ns;
    return std::llround(static_cast<double>(expected_ns) /
                        SlownessOfPass(plan_, program_, instruction, look_.slow_factors));
  }

  const v1::Plan& plan_;
  const v1::Program& program_;
  const Look look_;
  const std::vector<InstructionTime>& times_;
  // By instruction; of RECVs, when what they asked for was there.
  std::vector<int64_t> arrivals_ns_;
};

std::vector<double> SlowFactorsOf(const MeasuredIteration& iteration) {
  return SlowFactors(*iteration.plan,
                     iteration.profile != nullptr ? *iteration.profile : v1::CostProfile::default_instance());
}

// Empty where ranks have several stages, layers are of two kinds, or stages differ.
std::vector<int32_t> LayersOfStages(const v1::Plan& plan) {
  std::vector<int32_t> layers;
  for (const v1::ReplicaTopology& replica : plan.topology().replicas()) {
    std::vector<int32_t> own;
    for (const v1::StageTopology& stage : replica.stages()) {
      if (stage.encoder_layers() > 0) return {};
      own.push_back(static_cast<int32_t>(stage.decoder_layers()));
    }
    if (!layers.empty() && layers != own) return {};
    layers = std::move(own);
  }
  for (const v1::Program& program : plan.programs()) {
    if (program.stages_size() != 1) return {};
  }
  return layers;
}

std::vector<int32_t> LayersOfStages(absl::Span<const MeasuredIteration> iterations) {
  std::vector<int32_t> layers;
  for (const MeasuredIteration& iteration : iterations) {
    std::vector<int32_t> own = LayersOfStages(*iteration.plan);
    if (own.empty() || (!layers.empty() && layers != own)) return {};
    layers = std::move(own);
  }
  return std::ranges::find(layers, 0) == layers.end() ? layers : std::vector<int32_t>();
}

}  // namespace

absl::StatusOr<Timeline> TimelineOfIterations(absl::Span<const MeasuredIteration> iterations) {
  const AlignedTimes aligned = AlignTimes(iterations);
  TimelineBuilder builder;
  for (size_t i = 0; i < iterations.size(); ++i) {
    const std::vector<double> slow = SlowFactorsOf(iterations[i]);
    const std::vector<double> core_shares = CoreSharesOf(iterations[i]);
    for (int rank = 0; rank < iterations[i].plan->programs_size(); ++rank) {
      const RankRecords::Look look = {
          .slow_factors = slow, .core_share = core_shares[rank], .wait = aligned.waits[i][rank]};
      PENSTOCK_RETURN_IF_ERROR(
          RankRecords(*iterations[i].plan, rank, look, aligned.times[i][rank]).AddTo(builder));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(Timeline timeline, builder.Build());
  timeline.layers_of_stage = LayersOfStages(iterations);
  return timeline;
}

}  // namespace penstock::core
