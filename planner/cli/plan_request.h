// What `plan`, `compare` and `advise` are asked to plan: a profile, a mesh and batches of sample lengths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/adapter_flags.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/sample_lengths.h"

namespace CLI {
class App;
}

namespace penstock::cli {

// A cost profile and sample lengths.
struct SourceFlags {
  std::string profile;
  std::string lengths;
  LengthLimits limits;
  bool beyond_profile = false;
  AdapterFlags adapters;

  // --profile, --lengths, --max-length, --cut, --max-input, --max-target, --beyond-profile, those of
  // AdapterFlags.
  void AddTo(CLI::App& command);

  // A job of the profile's model, without mesh and planning. Reads the profile. With --beyond-profile the
  // model takes samples as long as the limits, and a warning on stderr says by how much that is more than the
  // profile's. Possible errors: NOT_FOUND, INVALID_ARGUMENT (names the file or the flag).
  absl::StatusOr<v1::JobSpec> ReadModel() const;

  // The samples of these rows, cut to the limits or left out; `sample_id` is the row, counted from
  // `first_row`.
  v1::Batch MakeBatch(absl::Span<const SampleLength> rows, uint64_t first_row,
                      v1::Architecture architecture) const;

 private:
  absl::Status GoBeyondProfile(const v1::CostProfile& costs, v1::ModelSpec& model) const;
};

struct PlanRequestFlags : SourceFlags {
  std::string rows;
  uint32_t pipeline = 1;
  uint32_t data = 1;
  uint32_t tensor = 1;
  uint32_t context = 1;
  uint32_t expert = 1;
  // --strategies, in place of these degrees.
  std::string strategies;
  PlanningFlags planning;

  // Those of SourceFlags, --rows, --pp, --dp, --tp, --cp, --ep, --strategies and those of PlanningFlags.
  void AddTo(CLI::App& command);

  // The job without its policy. Possible errors: as ReadModel and ReadStrategies.
  absl::StatusOr<v1::JobSpec> ReadJob() const;
  void SetPlanning(v1::Policy policy, v1::JobSpec* job) const;

  // `count` batches: rows A..B-1 are the first, the next B-A rows the second, and so on. Possible errors: as
  // ParseRows and ReadLengths.
  absl::StatusOr<std::vector<v1::Batch>> ReadBatches(uint64_t count, v1::Architecture architecture) const;
};

// Tells the job which lengths it will see, for a stage split by predicted time: those of the batches'
// samples, or 4096 of them, evenly spaced. Leaves out what the model cannot take: planning such a batch says
// so.
void SetTypicalSamples(const std::vector<v1::Batch>& batches, v1::JobSpec* job);

}  // namespace penstock::cli
