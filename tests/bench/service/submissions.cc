#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "penstock/client/planner_client.h"
#include "tests/bench/bench_job.h"
#include "tests/bench/service/figures.h"
#include "tests/bench/service/scenarios.h"
#include "tests/bench/service/stored_planner.h"

namespace penstock::bench {
namespace {

constexpr uint32_t kWindow = 4096;

absl::Status Register(PlannerClient& client, const std::string& job_id) {
  v1::RegisterJobRequest request;
  *request.mutable_job() = core::BenchJob(4, 1, v1::POLICY_PACKED);
  request.mutable_job()->set_job_id(job_id);
  request.mutable_job()->set_look_ahead_window(kWindow);
  return client.RegisterJob(request).status();
}

// One after the other.
absl::Status SubmitAll(PlannerClient& client, const std::string& job_id, const SubmissionOptions& options,
                       Latencies* latencies) {
  PENSTOCK_RETURN_IF_ERROR(Register(client, job_id));
  v1::SubmitBatchesRequest request;
  request.set_job_id(job_id);
  *request.add_batches() = core::BenchLengths(options.samples);
  for (uint64_t iteration = 0; iteration < options.batches; ++iteration) {
    core::SetIteration(iteration, request.mutable_batches(0));
    const absl::Time start = absl::Now();
    PENSTOCK_RETURN_IF_ERROR(client.SubmitBatches(request).status());
    latencies->Add(absl::Now() - start);
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> Measure(const SubmissionOptions& options, uint32_t clients) {
  // One thread plans what was submitted meanwhile, as ever.
  PENSTOCK_ASSIGN_OR_RETURN(const auto planner,
                            StoredPlanner::Start(options.store, {"--planning-threads=1"}));
  Latencies latencies;
  std::vector<absl::Status> ended(clients);
  std::vector<std::thread> threads;
  const absl::Time start = absl::Now();
  for (uint32_t i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      PlannerClient client(planner->address());
      ended[i] = SubmitAll(client, absl::StrCat("submits-", i), options, &latencies);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (const absl::Status& status : ended) PENSTOCK_RETURN_IF_ERROR(status);
  Json json = Quantiles(latencies);
  json["a_second"] = static_cast<double>(latencies.count()) / seconds;
  json["store_bytes_a_batch"] =
      static_cast<double>(planner->StoreBytes()) / static_cast<double>(latencies.count());
  return json;
}

}  // namespace

absl::StatusOr<Json> RunSubmissions(const SubmissionOptions& options) {
  if (options.batches > kWindow) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batches: ", options.batches, "; use at most ", kWindow));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Json one, Measure(options, 1));
  PENSTOCK_ASSIGN_OR_RETURN(const Json many, Measure(options, options.clients));
  return Json{{"scenario", "submissions"},  {"store", options.store},
              {"samples", options.samples}, {"batches", options.batches},
              {"one_client", one},          {absl::StrCat(options.clients, "_clients"), many}};
}

}  // namespace penstock::bench
