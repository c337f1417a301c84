// Collects what each iteration of a run really took, for a trace file or a diagnosis.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/trace.h"
#include "planner/core/timeline/measured_iteration.h"

namespace penstock::cli {

class TraceRecorder {
 public:
  // Bytes of plans and reports that are held: of a long run the last iterations.
  static constexpr size_t kMostBytes = size_t{256} << 20;

  explicit TraceRecorder(size_t most_bytes = kMostBytes) : most_bytes_(most_bytes) {}

  // Adds an iteration with the reports of its ranks; in order.
  void Add(v1::GetIterationResponse iteration);

  // What is held. Both point into this.
  std::vector<const v1::GetIterationResponse*> Recorded() const;
  std::vector<core::MeasuredIteration> Measurements() const;
  // Iterations that are no longer held.
  uint64_t forgotten() const { return forgotten_; }

  // Ranks are placed by their wall clocks, these by what ranks sent each other where they do not agree
  // (planner/core/clocks). The first iteration is the trace's zero.
  std::string ToJson() const;
  absl::Status Write(const std::string& path) const;
  // What is to be said of the clocks of ranks; empty where they agree.
  std::string ClockNote() const;

 private:
  const size_t most_bytes_;
  std::deque<v1::GetIterationResponse> held_;
  size_t bytes_ = 0;
  uint64_t forgotten_ = 0;
};

}  // namespace penstock::cli
