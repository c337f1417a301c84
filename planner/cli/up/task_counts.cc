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
  }
}

nlohmann::ordered_json ToJson(const std::vector<TaskCounts>& tasks) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const TaskCounts& task : tasks) {
    json[task.task] = {{"samples", task.samples}, {"tokens", task.tokens}, {"loss_tokens", task.loss_tokens}};
  }
  return json;
}

std::vector<TaskCounts> CountTasks(const v1::Batch& batch, const std::vector<TaskEnd>& ends,
                                   v1::Architecture architecture) {
  std::vector<TaskCounts> counts;
  for (const TaskEnd& end : ends) counts.push_back({.task = end.task});
  for (const v1::Sample& sample : batch.samples()) {
    const SampleLength length = {.input = sample.input_tokens(), .target = sample.target_tokens()};
    const auto end = std::ranges::upper_bound(ends, sample.sample_id(), {}, &TaskEnd::sample_id);
    TaskCounts& task = counts[end - ends.begin()];
    ++task.samples;
    task.tokens += uint64_t{length.input} + length.target;
    task.loss_tokens += LearntTokens(length, architecture);
  }
  return counts;
}

v1::Batch CountedBatches::Make(uint64_t iteration) {
  v1::Batch batch = source_.Make(iteration);
  if (!ends_.empty()) made_[iteration] = CountTasks(batch, ends_, architecture_);
  return batch;
}

std::vector<TaskCounts> CountedBatches::CountsOf(uint64_t iteration) {
  if (ends_.empty()) return {};
  made_.erase(made_.begin(), made_.lower_bound(iteration));
  const auto made = made_.find(iteration);
  return made != made_.end() ? made->second : CountTasks(source_.Make(iteration), ends_, architecture_);
}

}  // namespace penstock::cli
