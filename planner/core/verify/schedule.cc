// Rule 4: programs belong to the family of schedules that the plan names, and micro-batches enter the
// pipeline in the order in which the replica lists them.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

bool HasSplitBackward(const PlanIndex& index) {
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank)
    for (const v1::Instruction& instruction : index.program(rank).instructions())
      if (instruction.op() == v1::OP_BACKWARD_WEIGHT) return true;
  return false;
}

bool HasSeveralStagesOnARank(const PlanIndex& index) {
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank)
    if (index.program(rank).stages_size() > 1) return true;
  return false;
}

void CheckFamily(const PlanIndex& index, Report& report) {
  const v1::Schedule schedule = index.plan().schedule();
  if (index.forward_only()) {
    if (schedule != v1::SCHEDULE_UNSPECIFIED)
      report.Add(kLifecycle, "schedule is set, which a plan that is forward_only does not have");
    return;
  }
  const bool split = HasSplitBackward(index);
  const bool interleaved = !split && HasSeveralStagesOnARank(index);
  const char* expected = split         ? "SCHEDULE_SPLIT_BACKWARD"
                         : interleaved ? "SCHEDULE_INTERLEAVED"
                                       : "SCHEDULE_ONE_FORWARD_ONE_BACKWARD or SCHEDULE_READY_FIRST";
  const bool right = split         ? schedule == v1::SCHEDULE_SPLIT_BACKWARD
                     : interleaved ? schedule == v1::SCHEDULE_INTERLEAVED
                                   : schedule == v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD ||
                                         schedule == v1::SCHEDULE_READY_FIRST;
  if (right) return;
  const std::string name =
      v1::Schedule_IsValid(schedule) ? v1::Schedule_Name(schedule) : absl::StrCat(static_cast<int>(schedule));
  report.Add(kLifecycle, absl::StrCat("schedule is ", name, ", the programs are of ", expected));
}

// Passes of one kind on one stage, in ascending order of micro-batches.
class Ascending {
 public:
  Ascending(int rank, const char* where, Report& report) : rank_(rank), where_(where), report_(report) {}

  void See(const v1::Instruction& pass) {
    if (pass.micro_batch() < next_)
      report_.AddAt(
          kLifecycle, rank_, pass,
          absl::StrCat("it is out of order: ", where_, " micro-batch ", next_ - 1, " has run before it"));
    next_ = std::max(next_, pass.micro_batch() + 1);
  }

 private:
  const int rank_;
  const char* where_;
  Report& report_;
  uint32_t next_ = 0;
};

void CheckEntry(const PlanIndex& index, int replica, Report& report) {
  for (int place = 0; place < index.MeshOf(replica).group_ranks(); ++place) {
    const int rank = index.RankOf(replica, 0, place);
    Ascending forwards(rank, "on the first stage", report);
    for (const v1::Instruction& instruction : index.program(rank).instructions())
      if (instruction.op() == v1::OP_FORWARD && instruction.stage() == 0) forwards.See(instruction);
  }
}

// One stage a rank: micro-batches in order both ways, and no more of them in flight than there are stages
// from here to the end.
void CheckOneForwardOneBackward(const PlanIndex& index, int rank, Report& report) {
  Ascending forwards(rank, "in 1F1B", report);
  Ascending backwards(rank, "in 1F1B", report);
  int in_flight = 0;
  for (const v1::Instruction& instruction : index.program(rank).instructions()) {
    if (instruction.op() == v1::OP_BACKWARD) {
      backwards.See(instruction);
      --in_flight;
    }
    if (instruction.op() != v1::OP_FORWARD) continue;
    forwards.See(instruction);
    const int most = index.MeshOfRank(rank).stages() - static_cast<int>(instruction.stage());
    if (++in_flight == most + 1)
      report.AddAt(kLifecycle, rank, instruction,
                   absl::StrCat("1F1B has at most ", most, " micro-batches in flight on this stage"));
  }
}

}  // namespace

void CheckSchedule(const PlanIndex& index, Report& report) {
  CheckFamily(index, report);
  for (int replica = 0; replica < index.replicas(); ++replica) CheckEntry(index, replica, report);
  if (index.plan().schedule() != v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD) return;
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank)
    CheckOneForwardOneBackward(index, rank, report);
}

}  // namespace penstock::core::verify
