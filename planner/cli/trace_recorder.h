// Collects what each iteration of a run really took, for one trace file.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/trace.h"

namespace penstock::cli {

class TraceRecorder {
 public:
  // Adds an iteration with the reports of its ranks, each placed by the wall clock of its rank. The first one
  // is the trace's zero.
  void Add(const v1::GetIterationResponse& iteration);

  std::string ToJson() const { return trace_.ToJson(); }
  absl::Status Write(const std::string& path) const;

 private:
  Trace trace_;
  std::optional<int64_t> origin_unix_ns_;
};

}  // namespace penstock::cli
