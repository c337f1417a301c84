#include "planner/cli/up/strategy_news.h"

#include <cstdint>
#include <limits>

namespace penstock::cli {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);

}  // namespace

// Before the first change a job has all strategies that it was registered with.
bool StrategyNews::IsNews(const ActiveStrategies& active) const {
  if (known_.has_value())
    return known_->numbers != active.numbers || known_->from_iteration != active.from_iteration;
  if (active.numbers.size() != static_cast<size_t>(job_.strategies_size())) return true;
  for (uint32_t i = 0; i < active.numbers.size(); ++i)
    if (active.numbers[i] != i) return true;
  return false;
}

std::optional<ActiveStrategies> StrategyNews::Look(PlannerClient& client, absl::Time now) {
  if (job_.strategies().empty() || now < next_) return std::nullopt;
  next_ = now + kLookEvery;
  return LookNow(client);
}

std::optional<ActiveStrategies> StrategyNews::LookNow(PlannerClient& client) {
  if (job_.strategies().empty()) return std::nullopt;
  v1::GetJobRequest request;
  request.set_job_id(job_.job_id());
  // None of its iterations.
  request.set_from_iteration(std::numeric_limits<uint64_t>::max());
  const absl::StatusOr<v1::GetJobResponse> job = client.GetJob(request, kLookEvery);
  if (!job.ok()) return std::nullopt;
  std::optional<ActiveStrategies> active = AskForStrategies(client, job->job());
  if (!active.has_value()) return std::nullopt;
  const bool news = IsNews(*active);
  known_ = active;
  return news ? active : std::nullopt;
}

}  // namespace penstock::cli
