// RUN/metrics.jsonl: a line for each iteration, in full precision, for plots and comparisons.
//
//   {"iteration":7,"loss":2.8824353,"gradient_norm":1.25,"learning_rate":0.0003,"tokens":24576,...}
//
// Of a mixture: "tasks":{"flan":{"samples":45,"tokens":20110,"loss_tokens":9120,"loss":2.71},...}.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/task_counts.h"
#include "planner/cli/up/validation.h"

namespace penstock::cli {

class MetricsFile {
 public:
  // Keeps the lines of iterations before the first one of this run; those after it are done again. Possible
  // errors: those of reading and writing files, which name the path.
  static absl::StatusOr<MetricsFile> Open(const std::string& path, uint64_t first_iteration);

  // An iteration that is done again after a failure has another line: the later one is true. Possible errors:
  // UNAVAILABLE (the file cannot be written; names it). The file goes on with the next line.
  absl::Status Add(const v1::IterationSummary& iteration, const std::vector<TaskCounts>& tasks = {});
  // {"iteration":99,"validation_loss":2.9}: of the parameters behind that iteration. With several datasets
  // also "validation_tasks":{"flan":2.7,"code":3.1}.
  absl::Status AddValidation(const ValidatedCheckpoint& checkpoint);

 private:
  absl::Status Write(const std::string& line);

  MetricsFile(std::string path, std::ofstream file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  std::ofstream file_;
};

}  // namespace penstock::cli
