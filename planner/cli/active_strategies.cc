#include "planner/cli/active_strategies.h"

#include <utility>

#include "planner/cli/strategy_list.h"

namespace penstock::cli {
namespace {

constexpr absl::Duration kAskForStrategies = absl::Seconds(2);

}  // namespace

std::optional<ActiveStrategies> AskForStrategies(PlannerClient& client, const v1::JobSpec& job) {
  if (job.strategies().empty()) return std::nullopt;
  v1::ChangeStrategiesRequest request;
  request.set_job_id(job.job_id());
  const absl::StatusOr<v1::ChangeStrategiesResponse> response =
      client.ChangeStrategies(request, kAskForStrategies);
  if (!response.ok()) return std::nullopt;
  ActiveStrategies active = {.from_iteration = response->from_iteration()};
  for (const uint32_t number : response->strategies()) {
    // It was changed since the specification was asked for.
    if (number >= static_cast<uint32_t>(job.strategies_size())) return std::nullopt;
    active.numbers.push_back(number);
    active.strategies.push_back(job.strategies(static_cast<int>(number)));
  }
  if (active.numbers.empty()) return std::nullopt;
  return active;
}

v1::JobSpec OnStrategies(v1::JobSpec job, const ActiveStrategies& active) {
  SetStrategies(active.strategies, &job);
  return job;
}

}  // namespace penstock::cli
