#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "tests/bench/bench_job.h"
#include "tests/bench/service/scenarios.h"
#include "tests/bench/service/stored_planner.h"
#include "tests/bench/service/training_job.h"

namespace penstock::bench {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(20);
constexpr absl::Duration kTogether = absl::Minutes(10);
constexpr char kJob[] = "long";

TrainingJobOptions LongJob() {
  TrainingJobOptions options = {.spec = core::BenchJob(1, 4, v1::POLICY_PACKED),
                                .batch = core::BenchLengths(16),
                                .iteration = absl::ZeroDuration()};
  options.spec.set_job_id(kJob);
  options.spec.set_look_ahead_window(256);
  // Four layers fit on one rank.
  options.spec.mutable_model()->set_layers(4);
  return options;
}

absl::StatusOr<v1::JobStatus> StatusOf(PlannerClient& client) {
  v1::GetJobRequest ask;
  ask.set_job_id(kJob);
  ask.set_from_iteration(~uint64_t{0});
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, client.GetJob(ask));
  return job.status();
}

}  // namespace

absl::StatusOr<Json> RunRecovery(const RecoveryOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto planner, StoredPlanner::Start(options.store));
  TrainingJob job(planner->address(), LongJob());
  PENSTOCK_RETURN_IF_ERROR(job.Start());
  const absl::Time begun = absl::Now();
  while (job.iterations() < options.iterations && absl::Now() - begun < kTogether) absl::SleepFor(kTick);
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(job.Stop(), kJob));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobStatus before, StatusOf(job.client()));
  const int64_t store_bytes = planner->StoreBytes();
  planner->process().Kill();

  const absl::Time start = absl::Now();
  PENSTOCK_RETURN_IF_ERROR(planner->process().Restart());
  const absl::Duration serves = absl::Now() - start;
  PlannerClient client(planner->address());
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobStatus after, StatusOf(client));
  while (after.state() == v1::JOB_STATE_PREPARING && absl::Now() - start < kTogether) {
    PENSTOCK_ASSIGN_OR_RETURN(after, StatusOf(client));
  }
  const absl::Duration prepared = absl::Now() - start;
  if (after.completed_iteration() != before.completed_iteration()) {
    return absl::DataLossError(absl::StrCat("iteration ", before.completed_iteration(), " before the kill, ",
                                            after.completed_iteration(), " after it"));
  }
  return Json{{"scenario", "recovery"},
              {"store", options.store},
              {"iterations", after.completed_iteration()},
              {"ranks", LongJob().spec.mesh().data()},
              {"serves_ms", absl::ToDoubleMilliseconds(serves)},
              {"prepared_ms", absl::ToDoubleMilliseconds(prepared)},
              {"store_bytes", store_bytes},
              {"iterations_a_second",
               static_cast<double>(options.iterations) / absl::ToDoubleSeconds(start - begun)}};
}

}  // namespace penstock::bench
