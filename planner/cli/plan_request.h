// What `plan` and `compare` are asked to plan: a profile, a mesh and batches of sample lengths.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/sample_lengths.h"

namespace penstock::cli {

struct PlanRequestFlags {
  std::string profile;
  std::string lengths;
  std::string rows;
  uint32_t pipeline = 1;
  uint32_t data = 1;
  LengthLimits limits;
  PlanningFlags planning;

  // --profile, --lengths, --rows, --pp, --dp, --max-length, --max-input, --max-target and those of
  // PlanningFlags.
  void AddTo(CLI::App& command);

  // The job without its policy. Reads the profile.
  // Possible errors: NOT_FOUND, INVALID_ARGUMENT (names the file).
  absl::StatusOr<v1::JobSpec> ReadJob() const;

  // `count` batches: rows A..B-1 are the first, the next B-A rows the second, and so on. `sample_id` is the
  // row. Possible errors: as ParseRows and ReadLengths.
  absl::StatusOr<std::vector<v1::Batch>> ReadBatches(uint64_t count, v1::Architecture architecture) const;
};

// Tells the job which lengths it will see, for a stage split by predicted time: those of the batches'
// samples, or 4096 of them, evenly spaced. Leaves out what the model cannot take: planning such a batch says
// so.
void SetTypicalSamples(const std::vector<v1::Batch>& batches, v1::JobSpec* job);

}  // namespace penstock::cli
