// RUN/metrics.jsonl: a line for each iteration, in full precision, for plots and comparisons.
//
//   {"iteration":7,"loss":2.8824353,"gradient_norm":1.25,"learning_rate":0.0003,"tokens":24576,...}
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock::cli {

class MetricsFile {
 public:
  // Keeps the lines of iterations before the first one of this run; those after it are done again. Possible
  // errors: those of reading and writing files, which name the path.
  static absl::StatusOr<MetricsFile> Open(const std::string& path, uint64_t first_iteration);

  // An iteration that is done again after a failure has another line: the later one is true. Possible errors:
  // UNAVAILABLE (the file cannot be written; names it). The file goes on with the next line.
  absl::Status Add(const v1::IterationSummary& iteration);
  // {"iteration":99,"validation_loss":2.9}: of the parameters behind that iteration.
  absl::Status AddValidation(uint64_t iteration, double loss);

 private:
  absl::Status Write(const std::string& line);

  MetricsFile(std::string path, std::ofstream file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  std::ofstream file_;
};

}  // namespace penstock::cli
