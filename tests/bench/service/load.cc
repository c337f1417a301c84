#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "tests/bench/bench_job.h"
#include "tests/bench/service/figures.h"
#include "tests/bench/service/scenarios.h"
#include "tests/bench/service/stored_planner.h"
#include "tests/bench/service/training_job.h"

namespace penstock::bench {
namespace {

constexpr absl::Duration kSample = absl::Seconds(1);
constexpr absl::Duration kBetweenProbes = absl::Milliseconds(50);
// The first part of the time, in which caches and windows fill, does not count for the slope of the memory.
constexpr double kWarmUp = 0.4;

// Asks for programs that are ready, now and then, as a worker that comes back would, and measures how long
// they take.
class HandOverProbe {
 public:
  HandOverProbe(const std::string& address, const LoadOptions& options)
      : client_(address), options_(options), thread_([this] { Run(); }) {}
  ~HandOverProbe() {
    stopped_.Notify();
    thread_.join();
  }
  HandOverProbe(const HandOverProbe&) = delete;
  HandOverProbe& operator=(const HandOverProbe&) = delete;

  const Latencies& latencies() const { return latencies_; }
  const Outcomes& outcomes() const { return outcomes_; }

 private:
  void Run() {
    while (!stopped_.WaitForNotificationWithTimeout(kBetweenProbes)) outcomes_.Add(Probe());
  }

  absl::Status Probe() {
    const std::string job_id = absl::StrCat("load-", random_() % options_.jobs);
    v1::GetJobRequest ask;
    ask.set_job_id(job_id);
    ask.set_from_iteration(~uint64_t{0});
    PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, client_.GetJob(ask));
    if (job.status().planned_iteration() == 0) return absl::OkStatus();
    v1::StreamProgramsRequest request;
    request.set_job_id(job_id);
    request.set_rank(static_cast<uint32_t>(random_()) % (options_.pipeline * options_.data));
    request.set_from_iteration(job.status().planned_iteration() - 1);
    const absl::Time start = absl::Now();
    const auto stream = client_.StreamPrograms(request, absl::Seconds(10));
    PENSTOCK_RETURN_IF_ERROR(stream->Next().status());
    latencies_.Add(absl::Now() - start);
    return absl::OkStatus();
  }

  PlannerClient client_;
  const LoadOptions options_;
  std::mt19937 random_{1};
  Latencies latencies_;
  Outcomes outcomes_;
  absl::Notification stopped_;
  std::thread thread_;
};

// Resident memory once a second, from which a line is drawn.
class MemoryTrend {
 public:
  void Add(double seconds, int64_t bytes) {
    points_.emplace_back(seconds, static_cast<double>(bytes));
    most_ = std::max(most_, static_cast<double>(bytes));
  }

  // Bytes a minute: least squares over what comes after the warm-up.
  double SlopePerMinute() const {
    const auto first = static_cast<size_t>(kWarmUp * static_cast<double>(points_.size()));
    double n = 0;
    double x = 0;
    double y = 0;
    double xx = 0;
    double xy = 0;
    for (size_t i = first; i < points_.size(); ++i) {
      const auto& [seconds, bytes] = points_[i];
      n += 1;
      x += seconds;
      y += bytes;
      xx += seconds * seconds;
      xy += seconds * bytes;
    }
    const double spread = n * xx - x * x;
    return spread > 0 ? 60 * (n * xy - x * y) / spread : 0;
  }

  Json ToJson() const {
    constexpr double kMegabyte = 1e6;
    const auto at = [&](double share) {
      const auto index = static_cast<size_t>(share * static_cast<double>(points_.size() - 1));
      return points_.empty() ? 0 : points_[index].second / kMegabyte;
    };
    return {{"after_quarter_mb", at(0.25)},
            {"half_mb", at(0.5)},
            {"end_mb", at(1)},
            {"most_mb", most_ / kMegabyte},
            {"slope_mb_a_minute", SlopePerMinute() / kMegabyte}};
  }

 private:
  std::vector<std::pair<double, double>> points_;
  double most_ = 0;
};

TrainingJobOptions JobOfLoad(const LoadOptions& options, uint32_t index) {
  TrainingJobOptions job = {.spec = core::BenchJob(options.pipeline, options.data, v1::POLICY_DYNAMIC),
                            .batch = core::BenchLengths(options.samples),
                            .iteration = options.iteration};
  job.spec.set_job_id(absl::StrCat("load-", index));
  job.spec.set_look_ahead_window(options.look_ahead);
  return job;
}

std::vector<std::unique_ptr<ProgramStream>> OpenLazyReaders(PlannerClient& client,
                                                            const LoadOptions& options) {
  std::vector<std::unique_ptr<ProgramStream>> streams;
  for (uint32_t i = 0; i < options.lazy_readers; ++i) {
    v1::StreamProgramsRequest request;
    request.set_job_id(absl::StrCat("load-", i % options.jobs));
    request.set_rank(0);
    streams.push_back(client.StreamPrograms(request));
  }
  return streams;
}

// What all jobs measured of one kind.
Json AllOf(const std::vector<std::unique_ptr<TrainingJob>>& jobs,
           const Latencies& (TrainingJob::*measured)() const) {
  Latencies all;
  for (const auto& job : jobs) all.AddAll((job.get()->*measured)());
  return Quantiles(all);
}

}  // namespace

absl::StatusOr<Json> RunLoad(const LoadOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto planner, StoredPlanner::Start(options.store));
  std::vector<std::unique_ptr<TrainingJob>> jobs;
  for (uint32_t i = 0; i < options.jobs; ++i) {
    jobs.push_back(std::make_unique<TrainingJob>(planner->address(), JobOfLoad(options, i)));
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(jobs.back()->Start(), jobs.back()->job_id()));
  }
  PlannerClient lazy(planner->address());
  const auto lazy_readers = OpenLazyReaders(lazy, options);

  MemoryTrend memory;
  HandOverProbe probe(planner->address(), options);
  const absl::Time start = absl::Now();
  while (absl::Now() - start < options.time && planner->process().IsRunning()) {
    absl::SleepFor(kSample);
    memory.Add(absl::ToDoubleSeconds(absl::Now() - start), planner->process().ResidentBytes());
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  uint64_t iterations = 0;
  for (const auto& job : jobs) iterations += job->iterations();
  const int64_t store_bytes = planner->StoreBytes();
  Outcomes ended;
  absl::Status first_error;
  for (const auto& job : jobs) {
    const absl::Status status = job->Stop();
    ended.Add(status);
    first_error.Update(status);
  }
  const uint32_t ranks = options.jobs * options.pipeline * options.data;
  return Json{
      {"scenario", "load"},
      {"store", options.store},
      {"jobs", options.jobs},
      {"streams", ranks},
      {"lazy_readers", options.lazy_readers},
      {"samples", options.samples},
      {"look_ahead", options.look_ahead},
      {"iteration_ms", absl::ToDoubleMilliseconds(options.iteration)},
      {"seconds", seconds},
      {"iterations", iterations},
      {"programs_a_second", static_cast<double>(AllOf(jobs, &TrainingJob::reports)["count"]) / seconds},
      {"hand_over_when_ready", Quantiles(probe.latencies())},
      {"probes_ended", probe.outcomes().ToJson()},
      {"wait_for_program", AllOf(jobs, &TrainingJob::waits)},
      {"submit", AllOf(jobs, &TrainingJob::submissions)},
      {"report", AllOf(jobs, &TrainingJob::reports)},
      {"heartbeat", AllOf(jobs, &TrainingJob::heartbeats)},
      {"planner_memory", memory.ToJson()},
      {"store_mb", static_cast<double>(store_bytes) / 1e6},
      {"jobs_ended", ended.ToJson()},
      {"first_error", first_error.ToString()}};
}

}  // namespace penstock::bench
