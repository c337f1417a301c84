#include "planner/service/engine/job_iterations.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/compact/instruction_columns.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/message_limit.h"

namespace penstock {

absl::StatusOr<HeldIteration> JobIterations::Held(uint64_t iteration) const {
  JobLock lock(record_.mutex());
  const JobState& state = record_.state();
  if (iteration < state.first_held() || !state.IsPlanned(iteration)) {
    return absl::OutOfRangeError(absl::StrCat("iteration: ", iteration,
                                              " is not held; planned iterations from ", state.first_held(),
                                              " to before ", state.planned(), " are"));
  }
  HeldIteration held = record_.values().Held(iteration);
  if (held.batch == nullptr || held.plan == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("iteration: the plan of ", iteration, " is no longer in memory"));
  }
  return held;
}

absl::Status JobIterations::MakeAgain(uint64_t iteration, const absl::Status& missing) {
  {
    JobLock lock(record_.mutex());
    if (std::optional<absl::Status> lost = planning_.TakeLossLocked(iteration); lost.has_value())
      return *std::move(lost);
    planning_.WantLocked(iteration);
  }
  planning_.PlanMore();
  return absl::UnavailableError(absl::StrCat(missing.message(), " and is made again; try again"));
}

absl::StatusOr<v1::GetIterationResponse> JobIterations::Get(uint64_t iteration, uint32_t compact_version) {
  const absl::StatusOr<HeldIteration> held = Held(iteration);
  if (absl::IsUnavailable(held.status())) return MakeAgain(iteration, held.status());
  PENSTOCK_RETURN_IF_ERROR(held.status());
  v1::GetIterationResponse response;
  *response.mutable_batch() = *held->batch;
  if (compact_version >= kCompactVersion) {
    held->plan->CompactTo(response.mutable_plan(), response.mutable_instruction_columns());
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(*response.mutable_plan(), held->plan->Plan());
  }
  for (const ReportPtr& report : held->reports) *response.add_reports() = *report;
  JobLock lock(record_.mutex());
  if (const store::v1::CostsRevised* costs = record_.state().CostsOf(iteration); costs != nullptr)
    *response.mutable_profile() = costs->profile();
  PENSTOCK_RETURN_IF_ERROR(CheckMessage(absl::StrCat("the plan of iteration ", iteration), response,
                                        record_.services().message_bytes, compact_version));
  return response;
}

std::vector<v1::IterationSummary> JobIterations::Summaries(uint64_t from_iteration) const {
  std::vector<v1::IterationSummary> summaries;
  JobLock lock(record_.mutex());
  const auto& all = record_.state().summaries();
  const auto first = std::ranges::lower_bound(
      all, from_iteration, {}, [](const v1::IterationSummary& one) { return one.iteration(); });
  summaries.assign(first, all.end());
  return summaries;
}

std::optional<v1::IterationSummary> JobIterations::LastSummary() const {
  JobLock lock(record_.mutex());
  if (record_.state().summaries().empty()) return std::nullopt;
  return record_.state().summaries().back();
}

}  // namespace penstock
