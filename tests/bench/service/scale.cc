#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "penstock/client/planner_client.h"
#include "tests/bench/bench_job.h"
#include "tests/bench/service/scenarios.h"
#include "tests/bench/service/stored_planner.h"

namespace penstock::bench {
namespace {

constexpr absl::Duration kDeadline = absl::Minutes(10);
constexpr uint32_t kRanksLookedAt = 64;

v1::JobSpec LargeJob(const ScaleOptions& options) {
  v1::JobSpec job = core::BenchJob(options.pipeline, options.data, v1::POLICY_DYNAMIC);
  job.set_job_id("large");
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
  job.mutable_planning()->set_effort(v1::EFFORT_FAST);
  job.set_look_ahead_window(2);
  return job;
}

absl::Status Submit(PlannerClient& client, const ScaleOptions& options) {
  v1::SubmitBatchesRequest request;
  request.set_job_id("large");
  *request.add_batches() = core::BenchLengths(options.samples);
  core::SetIteration(0, request.mutable_batches(0));
  return client.SubmitBatches(request, kDeadline).status();
}

// The first program of a rank.
absl::StatusOr<v1::StreamProgramsResponse> ProgramOf(PlannerClient& client, uint32_t rank) {
  v1::StreamProgramsRequest request;
  request.set_job_id("large");
  request.set_rank(rank);
  PENSTOCK_ASSIGN_OR_RETURN(auto program, client.StreamPrograms(request, kDeadline)->Next());
  if (!program.has_value()) return absl::InternalError("the job has ended");
  return *std::move(program);
}

}  // namespace

absl::StatusOr<Json> RunScale(const ScaleOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto planner,
                            StoredPlanner::Start("sqlite", {"--job-memory=8GB", "--memory=16GB"}));
  PlannerClient client(planner->address());
  v1::RegisterJobRequest registration;
  *registration.mutable_job() = LargeJob(options);
  const absl::Time start = absl::Now();
  PENSTOCK_RETURN_IF_ERROR(
      AnnotateError(client.RegisterJob(registration, kDeadline).status(), "RegisterJob"));
  const absl::Time registered = absl::Now();
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(Submit(client, options), "SubmitBatches"));
  const absl::Time submitted = absl::Now();
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(ProgramOf(client, 0).status(), "StreamPrograms"));
  const absl::Time planned = absl::Now();
  const int64_t resident = planner->process().ResidentBytes();

  const uint32_t ranks = options.pipeline * options.data;
  size_t bytes = 0;
  size_t most = 0;
  const uint32_t looked_at = std::min(ranks, kRanksLookedAt);
  const absl::Time reading = absl::Now();
  for (uint32_t i = 0; i < looked_at; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const v1::StreamProgramsResponse program,
                              ProgramOf(client, static_cast<uint32_t>(uint64_t{i} * ranks / looked_at)));
    bytes += program.ByteSizeLong();
    most = std::max(most, program.ByteSizeLong());
  }
  const absl::Duration read = absl::Now() - reading;
  const double each = static_cast<double>(bytes) / looked_at;
  return Json{{"scenario", "scale"},
              {"ranks", ranks},
              {"pipeline", options.pipeline},
              {"data", options.data},
              {"samples", options.samples},
              {"register_ms", absl::ToDoubleMilliseconds(registered - start)},
              {"submit_ms", absl::ToDoubleMilliseconds(submitted - registered)},
              {"planned_ms", absl::ToDoubleMilliseconds(planned - submitted)},
              {"planner_mb", static_cast<double>(resident) / 1e6},
              {"message_bytes", each},
              {"largest_message_bytes", most},
              {"all_messages_mb", each * ranks / 1e6},
              {"hand_over_ms", absl::ToDoubleMilliseconds(read) / looked_at}};
}

}  // namespace penstock::bench
