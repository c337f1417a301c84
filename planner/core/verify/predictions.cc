// Rule 8: the times of all instructions are those of the model of execution for the durations that the plan
// has, and what is predicted of the iteration and of every rank follows from them (execution.md, sections 6
// and 9).
#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rank_time.h"
#include "planner/core/verify/rules.h"
#include "planner/core/verify/timeline.h"

namespace penstock::core::verify {
namespace {

bool TakesNoTime(v1::Op op) { return op == v1::OP_LOAD || op == v1::OP_WAIT || op == v1::OP_FREE; }

// Whether every time can be looked at.
bool CheckRanges(const PlanIndex& index, Report& report) {
  bool sound = true;
  for (int rank = 0; rank < index.ranks(); ++rank) {
    for (const v1::Instruction& instruction : index.program(rank).instructions()) {
      const int64_t start = instruction.expected_start_ns();
      const int64_t duration = instruction.expected_duration_ns();
      const int64_t own = instruction.own_duration_ns();
      if (own < 0 || own > duration) {
        sound = false;
        report.AddAt(kPredictions, rank, instruction,
                     absl::StrCat("own_duration_ns is ", own, ", which is not between 0 and its ",
                                  "expected_duration_ns, ", duration));
      }
      if (start >= 0 && duration >= 0 && start <= Timeline::kMostNs && duration <= Timeline::kMostNs)
        continue;
      sound = false;
      report.AddAt(kPredictions, rank, instruction,
                   absl::StrCat("expected_start_ns is ", start, " and expected_duration_ns ", duration,
                                ": both must be between 0 and ", Timeline::kMostNs));
    }
  }
  return sound;
}

struct Peak {
  int64_t bytes = 0;
  uint32_t instruction = 0;
};

// In the order of the program. False when the account leaves all bounds, which rule 6 reports.
bool FindPeak(const v1::Program& program, Peak* peak) {
  int64_t in_use = program.static_memory_bytes();
  for (const v1::Instruction& instruction : program.instructions()) {
    if (__builtin_add_overflow(in_use, instruction.memory_acquired_bytes(), &in_use)) return false;
    if (in_use > peak->bytes) *peak = {in_use, instruction.id()};
    if (__builtin_sub_overflow(in_use, instruction.memory_released_bytes(), &in_use)) return false;
  }
  return true;
}

// As many as any replica's stages and tensor ranks have.
size_t ReduceGroups(const PlanIndex& index) {
  size_t most = 0;
  for (int replica = 0; replica < index.replicas(); ++replica)
    most = std::max(most, static_cast<size_t>(index.StagesOf(replica)) * index.MeshOf(replica).tensors);
  return most;
}

class Check {
 public:
  Check(const PlanIndex& index, Report& report)
      : index_(index),
        predicted_(index.plan().predicted()),
        timeline_(index),
        report_(report),
        reduce_ns_(ReduceGroups(index), -1) {}

  void Run() {
    for (int rank = 0; rank < index_.ranks() && !index_.stopped(); ++rank)
      for (const v1::Instruction& instruction : index_.program(rank).instructions())
        CheckTimes(rank, instruction);
    CheckIteration();
    if (predicted_.ranks_size() != index_.ranks())
      return report_.Add(kPredictions, absl::StrCat("predicted.ranks has ", predicted_.ranks_size(),
                                                    " entries, the plan ", index_.ranks(), " ranks"));
    const std::vector<RankTime> times = ExplainTimes(index_, makespan_ns_);
    for (int rank = 0; rank < index_.ranks(); ++rank) CheckRank(rank, times[rank]);
  }

 private:
  void CheckTimes(int rank, const v1::Instruction& instruction) {
    const auto expect = [&](const char* field, int64_t found, int64_t expected) {
      if (found == expected) return;
      report_.AddAt(kPredictions, rank, instruction,
                    absl::StrCat(field, " is ", found, ", expected ", expected));
    };
    expect("expected_start_ns", instruction.expected_start_ns(), timeline_.StartOf(rank, instruction));
    if (TakesNoTime(instruction.op())) expect("expected_duration_ns", instruction.expected_duration_ns(), 0);
    if (instruction.op() == v1::OP_RECV) {
      const OtherEnd send = FindOtherEnd(index_, rank, instruction);
      if (send.instruction != nullptr)
        expect("expected_duration_ns", instruction.expected_duration_ns(),
               send.instruction->expected_duration_ns());
    }
    if (instruction.op() == v1::OP_REDUCE_GRADIENTS) {
      int64_t& first = reduce_ns_[index_.ReduceGroupOf(rank, instruction.stage())];
      if (first < 0) first = instruction.expected_duration_ns();
      expect("expected_duration_ns", instruction.expected_duration_ns(), first);
    }
    if (instruction.op() == v1::OP_RESHARD) CheckReshard(rank, instruction);
    makespan_ns_ = std::max(makespan_ns_, Timeline::EndOf(instruction));
    if (IsPass(instruction.op())) last_pass_ns_ = std::max(last_pass_ns_, Timeline::EndOf(instruction));
  }

  void CheckReshard(int rank, const v1::Instruction& reshard) {
    int64_t& first =
        reshard_ns_[reshard.part() == kGradientsToShares ? kGradientsToShares : kParametersToStages];
    if (first < 0) first = reshard.expected_duration_ns();
    if (reshard.expected_duration_ns() != first)
      report_.AddAt(kPredictions, rank, reshard,
                    absl::StrCat("expected_duration_ns is ", reshard.expected_duration_ns(), ", expected ",
                                 first, ", as on other ranks"));
  }

  void CheckIteration() {
    const auto expect = [&](const char* field, int64_t found, int64_t expected) {
      if (found != expected)
        report_.Add(kPredictions, absl::StrCat(field, " is ", found, ", expected ", expected));
    };
    expect("predicted.makespan_ns", predicted_.makespan_ns(), makespan_ns_);
    expect("predicted.last_backward_ns", predicted_.last_backward_ns(), last_pass_ns_);
    const int64_t bound = index_.plan().lower_bound_ns();
    if (bound < 0 || bound > makespan_ns_)
      report_.Add(kPredictions, absl::StrCat("lower_bound_ns is ", bound,
                                             ", which is not between 0 and the makespan, ", makespan_ns_));
  }

  void CheckRank(int rank, const RankTime& time) {
    const v1::RankPrediction& predicted = predicted_.ranks(rank);
    const v1::Bubble& bubble = predicted.bubble();
    const auto expect = [&](const char* field, int64_t found, int64_t expected) {
      if (found == expected) return;
      report_.AddAt(kPredictions, rank,
                    absl::StrCat("predicted ", field, " is ", found, ", expected ", expected));
    };
    expect("busy_ns", predicted.busy_ns(), time.busy_ns);
    expect("fill_ns", bubble.fill_ns(), time.fill_ns);
    expect("drain_ns", bubble.drain_ns(), time.drain_ns);
    expect("dependency_ns", bubble.dependency_ns(), time.dependency_ns);
    expect("transfer_ns", bubble.transfer_ns(), time.transfer_ns);
    expect("imbalance_ns", bubble.imbalance_ns(), time.imbalance_ns);
    expect("memory_ns", bubble.memory_ns(), time.memory_ns);
    expect("group_ns", bubble.group_ns(), time.group_ns);
    Peak peak;
    if (!FindPeak(index_.program(rank), &peak)) return;
    expect("peak_memory_bytes", predicted.peak_memory_bytes(), peak.bytes);
    expect("peak_instruction", predicted.peak_instruction(), peak.instruction);
  }

  const PlanIndex& index_;
  const v1::Prediction& predicted_;
  const Timeline timeline_;
  Report& report_;
  // Of each stage, and in it of each tensor rank, that of the first rank.
  std::vector<int64_t> reduce_ns_;
  // Of the RESHARDs, by part, likewise.
  std::array<int64_t, 2> reshard_ns_ = {-1, -1};
  int64_t makespan_ns_ = 0;
  int64_t last_pass_ns_ = 0;
};

}  // namespace

void CheckPredictions(const PlanIndex& index, Report& report) {
  if (CheckRanges(index, report)) Check(index, report).Run();
}

}  // namespace penstock::core::verify
