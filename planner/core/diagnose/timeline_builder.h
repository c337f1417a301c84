// A timeline from single operations, in any order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// What a trace says of an operation.
struct OperationRecord {
  // -1: the rank is told by its replica and stage.
  int64_t rank = -1;
  int64_t replica = 0;
  int64_t stage = 0;
  int64_t step = 0;
  // "forward-compute": docs/diagnosis.md lists the names.
  std::string name;
  // -1: not said.
  int64_t micro_batch = -1;
  int64_t model_stage = -1;
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  int64_t expected_ns = 0;
  // See Operation.
  double core_share = 1;
  int64_t computed_ns = 0;
  int64_t expected_computed_ns = 0;
  // Where the order is known: the number of the operation on its rank in its step, in the order in which the
  // rank begins those of a stream, and the numbers of those that end before. -1: not known.
  int64_t id = -1;
  int64_t stream = 0;
  std::vector<int64_t> after = {};
};

// What an operation of the name is; of a name that is not known an operation of a rank alone.
OperationKind KindOfName(const std::string& name);

class TimelineBuilder {
 public:
  // Possible errors: INVALID_ARGUMENT (a number out of range, named; a rank that moves to another place).
  absl::Status Add(OperationRecord record);

  // Possible errors: INVALID_ARGUMENT (no operations, or none that is a pass; a stage without ranks).
  absl::StatusOr<Timeline> Build();

 private:
  struct Entry {
    Operation operation;
    int64_t id = -1;
    int64_t stream = 0;
    std::vector<int64_t> after;
  };
  struct Rank {
    int64_t number = 0;
    int64_t replica = 0;
    int64_t stage = 0;
  };

  int32_t RankOf(const OperationRecord& record);
  static absl::StatusOr<TimelineStep> StepOf(int64_t number, std::vector<Entry> entries);
  static void BeginWaitsTogether(TimelineStep& step);
  static absl::Status KeepOrder(const std::vector<Entry>& entries, TimelineStep& step);
  absl::Status PlaceRanks(Timeline& timeline) const;

  std::vector<Rank> ranks_;
  // By rank, replica and stage, where rank is -1 unless it is said.
  std::map<std::tuple<int64_t, int64_t, int64_t>, int32_t> rank_positions_;
  std::map<int64_t, std::tuple<int64_t, int64_t>> places_;
  std::map<std::string, int32_t> name_positions_;
  std::map<int64_t, std::vector<Entry>> steps_;
};

}  // namespace penstock::core
