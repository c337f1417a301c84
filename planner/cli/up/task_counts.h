// What the batches of a mixture hold of each task.
//
//   CountedBatches batches(*source, data.TaskEnds(), LearntByLength(v1::ARCHITECTURE_GPT));
//   ... a feeder takes batches from it ...
//   batches.CountsOf(12);        // of each task, what was in the batch of iteration 12
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/batch_source.h"

namespace penstock::cli {

struct TaskCounts {
  std::string task;
  uint64_t samples = 0;
  uint64_t tokens = 0;
  // Of them, those that the loss counts.
  uint64_t loss_tokens = 0;
  // Of an iteration: the mean over its tokens, by their weights; nothing where nothing of the task was
  // learnt.
  std::optional<double> loss = {};

  bool operator==(const TaskCounts&) const = default;
};

// Adds the counts of the same tasks in the same order; to nothing, all of them. Losses are those of `more`,
// where it has one: the last one stays.
void AddCounts(const std::vector<TaskCounts>& more, std::vector<TaskCounts>& sum);

// Fills in the losses of an iteration. `tasks` are those of the job, in its order.
void SetLosses(const v1::IterationSummary& iteration, std::vector<TaskCounts>& tasks);

// {"flan": {"samples": 45, "tokens": 20110, "loss_tokens": 9120, "loss": 2.71}, ...}
nlohmann::ordered_json ToJson(const std::vector<TaskCounts>& tasks);

// Where the ids of a task's samples end.
struct TaskEnd {
  std::string task;
  // Behind the last one.
  uint64_t sample_id = 0;
};

// How many tokens are learnt of a sample of a batch.
using LearntOf = std::function<uint32_t(const v1::Sample&)>;

// Where tokens have no weights.
LearntOf LearntByLength(v1::Architecture architecture);

// What the samples of a batch add up to, of each task. `ends` ascend; every sample is of one of them.
std::vector<TaskCounts> CountTasks(const v1::Batch& batch, const std::vector<TaskEnd>& ends,
                                   const LearntOf& learnt);

// A source that remembers what was in the batches that it made, until somebody asks. One thread.
class CountedBatches : public BatchSource {
 public:
  // `source` must outlive this object.
  CountedBatches(BatchSource& source, std::vector<TaskEnd> ends, LearntOf learnt)
      : source_(source), ends_(std::move(ends)), learnt_(std::move(learnt)) {}

  v1::Batch Make(uint64_t iteration) override;

  // Of each task; empty where there are none. Forgets older iterations. What is not remembered (a feeder
  // before this one made the batch, or it is asked for again) is counted anew.
  std::vector<TaskCounts> CountsOf(uint64_t iteration);

 private:
  BatchSource& source_;
  const std::vector<TaskEnd> ends_;
  const LearntOf learnt_;
  std::map<uint64_t, std::vector<TaskCounts>> made_;
};

}  // namespace penstock::cli
