#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "tests/bench/bench_job.h"
#include "tests/bench/service/figures.h"
#include "tests/bench/service/scenarios.h"
#include "tests/bench/service/stored_planner.h"
#include "tests/bench/service/training_job.h"

namespace penstock::bench {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(20);
constexpr absl::Duration kCallDeadline = absl::Seconds(60);

// The job that must not be disturbed.
TrainingJobOptions Victim() {
  TrainingJobOptions options = {.spec = core::BenchJob(2, 2, v1::POLICY_DYNAMIC),
                                .batch = core::BenchLengths(64),
                                .iteration = absl::Milliseconds(200),
                                .heartbeat_interval = absl::Milliseconds(200)};
  options.spec.set_job_id("trains");
  options.spec.set_look_ahead_window(8);
  return options;
}

v1::RegisterJobRequest Registration(const std::string& id, uint32_t typical_samples) {
  v1::RegisterJobRequest request;
  v1::JobSpec& job = *request.mutable_job();
  job = core::BenchJob(8, 1, v1::POLICY_DYNAMIC);
  job.set_job_id(id);
  const v1::Batch typical = core::BenchLengths(typical_samples);
  for (const v1::Sample& sample : typical.samples()) {
    job.mutable_planning()->add_typical_samples()->set_target_tokens(sample.target_tokens());
  }
  return request;
}

v1::PlanBatchRequest WhatIf(uint32_t samples) {
  v1::PlanBatchRequest request;
  *request.mutable_job() = core::BenchJob(4, 1, v1::POLICY_DYNAMIC);
  *request.mutable_batch() = core::BenchLengths(samples);
  core::SetIteration(0, request.mutable_batch());
  return request;
}

absl::Duration OldestHeartbeat(const v1::JobStatus& status) {
  int64_t oldest = 0;
  for (const v1::WorkerStatus& worker : status.workers())
    oldest = std::max(oldest, worker.heartbeat_age_ms());
  return absl::Milliseconds(oldest);
}

struct Watched {
  Latencies ages;
  Latencies looks;
  v1::JobStatus last;
};

absl::Status Watch(const std::string& address, absl::Duration time, Watched* watched) {
  PlannerClient client(address);
  v1::GetJobRequest ask;
  ask.set_job_id("trains");
  ask.set_from_iteration(~uint64_t{0});
  for (const absl::Time end = absl::Now() + time; absl::Now() < end; absl::SleepFor(kLook)) {
    const absl::Time start = absl::Now();
    PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, client.GetJob(ask));
    watched->looks.Add(absl::Now() - start);
    watched->ages.Add(OldestHeartbeat(job.status()));
    watched->last = job.status();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> RunStarvation(const StarvationOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto planner, StoredPlanner::Start("sqlite"));
  TrainingJob victim(planner->address(), Victim());
  PENSTOCK_RETURN_IF_ERROR(victim.Start());
  Watched alone;
  PENSTOCK_RETURN_IF_ERROR(Watch(planner->address(), absl::Seconds(5), &alone));
  const uint64_t before = victim.iterations();

  Outcomes registrations;
  Outcomes what_ifs;
  Latencies registered;
  Latencies planned;
  std::vector<std::thread> askers;
  for (uint32_t i = 0; i < options.registrations; ++i) {
    askers.emplace_back([&, i] {
      const absl::Time start = absl::Now();
      registrations.Add(
          PlannerClient(planner->address())
              .RegisterJob(Registration(absl::StrCat("asks-", i), options.typical_samples), kCallDeadline)
              .status());
      registered.Add(absl::Now() - start);
    });
  }
  for (uint32_t i = 0; i < options.what_ifs; ++i) {
    askers.emplace_back([&] {
      const absl::Time start = absl::Now();
      what_ifs.Add(
          PlannerClient(planner->address()).PlanBatch(WhatIf(options.samples), kCallDeadline).status());
      planned.Add(absl::Now() - start);
    });
  }
  Watched starved;
  const absl::Status watching = Watch(planner->address(), options.time, &starved);
  const uint64_t during = victim.iterations() - before;
  for (std::thread& asker : askers) asker.join();
  const absl::Status victim_status = victim.Stop();
  return Json{{"scenario", "starvation"},
              {"registrations", options.registrations},
              {"typical_samples", options.typical_samples},
              {"what_ifs", options.what_ifs},
              {"samples", options.samples},
              {"seconds", absl::ToDoubleSeconds(options.time)},
              {"heartbeat_age_alone", Quantiles(alone.ages)},
              {"heartbeat_age", Quantiles(starved.ages)},
              {"get_job", Quantiles(starved.looks)},
              {"heartbeat_call", Quantiles(victim.heartbeats())},
              {"wait_for_program", Quantiles(victim.waits())},
              {"iterations_a_second", static_cast<double>(during) / absl::ToDoubleSeconds(options.time)},
              {"registration", Quantiles(registered)},
              {"registrations_ended", registrations.ToJson()},
              {"what_if", Quantiles(planned)},
              {"what_ifs_ended", what_ifs.ToJson()},
              {"watching", watching.ToString()},
              {"victim", victim_status.ToString()},
              {"victim_state", v1::JobState_Name(starved.last.state())}};
}

}  // namespace penstock::bench
