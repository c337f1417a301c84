#include "planner/cli/up/task_counts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "planner/cli/sample_lengths.h"

namespace penstock::cli {

void AddCounts(const std::vector<TaskCounts>& more, std::vector<TaskCounts>& sum) {
  if (sum.empty()) sum.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) {
    sum[i].task = more[i].task;
    sum[i].samples += more[i].samples;
    sum[i].tokens += more[i].tokens;
    sum[i].loss_tokens += more[i].loss_tokens;
    if (more[i].loss.has_value()) sum[i].loss = more[i].loss;
  }
}

void SetLosses(const v1::IterationSummary& iteration, std::vector<TaskCounts>& tasks) {
  for (const v1::TaskLoss& measured : iteration.tasks()) {
    if (measured.weight() > 0 && measured.task() < tasks.size())
      tasks[measured.task()].loss = measured.loss();
  }
}

nlohmann::ordered_json ToJson(const std::vector<TaskCounts>& tasks) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const TaskCounts& task : tasks) {
    json[task.task] = {{"samples", task.samples}, {"tokens", task.tokens}, {"loss_tokens", task.loss_tokens}};
    if (task.loss.has_value()) json[task.task]["loss"] = *task.loss;
  }
  return json;
}

LearntOf LearntByLength(v1::Architecture architecture) {
  return [architecture](const v1::Sample& sample) {
    return LearntTokens({.input = sample.input_tokens(), .target = sample.target_tokens()}, architecture);
  };
}

std::vector<TaskCounts> CountTasks(const v1::Batch& batch, const std::vector<TaskEnd>& ends,
                                   const LearntOf& learnt) {
  std::vector<TaskCounts> counts;
  for (const TaskEnd& end : ends) counts.push_back({.task = end.task});
  for (const v1::Sample& sample : batch.samples()) {
    const auto end = std::ranges::upper_bound(ends, sample.sample_id(), {}, &TaskEnd::sample_id);
    TaskCounts& task = counts[end - ends.begin()];
    ++task.samples;
    task.tokens += uint64_t{sample.input_tokens()} + sample.target_tokens();
    task.loss_tokens += learnt(sample);
  }
  return counts;
}

v1::Batch CountedBatches::Make(uint64_t iteration) {
  v1::Batch batch = source_.Make(iteration);
  if (!ends_.empty()) made_[iteration] = CountTasks(batch, ends_, learnt_);
  return batch;
}

std::vector<TaskCounts> CountedBatches::CountsOf(uint64_t iteration) {
  if (ends_.empty()) return {};
  made_.erase(made_.begin(), made_.lower_bound(iteration));
  const auto made = made_.find(iteration);
  return made != made_.end() ? made->second : CountTasks(source_.Make(iteration), ends_, learnt_);
}

}  // namespace penstock::cli
