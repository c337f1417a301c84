// What the ranks of a job did and when, from the planner that has their reports.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/trace_recorder.h"

namespace CLI {
class App;
}

namespace penstock::cli {

struct JobIterationFlags {
  PlannerFlags planner;
  std::string job;
  // "20": the last so many; "100:120": from 100 on, before 120.
  std::string iterations = "10";

  // --planner, --job and --iterations, none of which is required. Must outlive `command`.
  void AddTo(CLI::App& command);
};

struct JobRecord {
  v1::JobSpec job;
  TraceRecorder iterations;
};

// The iterations that the planner holds of those that are asked for. Possible errors: INVALID_ARGUMENT (names
// --iterations or --planner), NOT_FOUND (the job; or it holds none of them: says which it has), those of the
// planner.
absl::StatusOr<JobRecord> RecordIterations(const JobIterationFlags& flags);

}  // namespace penstock::cli
