#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "penstock/client/planner_client.h"
#include "tests/bench/service/figures.h"
#include "tests/bench/service/scenarios.h"

namespace penstock::bench {
namespace {

absl::StatusOr<std::vector<v1::PlanBatchRequest>> ReadRequests(const std::vector<std::string>& paths) {
  std::vector<v1::PlanBatchRequest> requests;
  for (const std::string& path : paths) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
    if (!requests.emplace_back().ParseFromString(bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("--requests: ", path, " is no PlanBatchRequest"));
    }
  }
  return requests;
}

// The first call makes the connection and is not counted.
absl::Status Ask(const std::string& address, const std::vector<v1::PlanBatchRequest>& requests,
                 std::atomic<uint32_t>* next, uint32_t calls, Latencies* latencies) {
  PlannerClient client(address);
  PENSTOCK_RETURN_IF_ERROR(client.PlanBatch(requests.front()).status());
  for (uint32_t call = (*next)++; call < calls; call = (*next)++) {
    const absl::Time start = absl::Now();
    PENSTOCK_RETURN_IF_ERROR(client.PlanBatch(requests[call % requests.size()]).status());
    latencies->Add(absl::Now() - start);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> RunPlans(const PlanOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::PlanBatchRequest> requests, ReadRequests(options.requests));
  Latencies latencies;
  std::atomic<uint32_t> next = 0;
  std::vector<absl::Status> ended(options.clients);
  std::vector<std::thread> threads;
  const absl::Time start = absl::Now();
  for (uint32_t i = 0; i < options.clients; ++i) {
    threads.emplace_back(
        [&, i] { ended[i] = Ask(options.planner, requests, &next, options.calls, &latencies); });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (const absl::Status& status : ended) PENSTOCK_RETURN_IF_ERROR(status);
  Json json = {{"scenario", "plans"},
               {"samples", requests.front().batch().samples_size()},
               {"clients", options.clients}};
  json.update(Quantiles(latencies));
  json["a_second"] = static_cast<double>(latencies.count()) / seconds;
  return json;
}

}  // namespace penstock::bench
