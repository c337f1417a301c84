// Whole plans of small jobs: what is accepted is planned by all rules, or refused with a reason; never an
// internal error.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "planner/core/contract/total_layers.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "planner/service/rpc/request_validation.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

v1::PlanBatchRequest Valid(uint32_t seed) {
  static constexpr v1::Policy kPolicies[] = {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED,
                                             v1::POLICY_TOKEN_BUDGET, v1::POLICY_DYNAMIC};
  const v1::Policy policy = kPolicies[seed % 5];
  v1::PlanBatchRequest request;
  *request.mutable_job() = seed % 2 == 0 ? core::GptJob(2, 2, policy) : core::T5Job(2, 1, policy);
  *request.mutable_batch() = core::MakeBatch({{5, 9}, {100, 20}, {0, 3}, {17, 17}});
  return request;
}

// Others are planned as well, but not thousands of times.
bool IsSmall(const v1::PlanBatchRequest& request) {
  const v1::JobSpec& job = request.job();
  return core::TotalLayers(job.model()) <= 32 && job.mesh().pipeline() <= 4 && job.mesh().data() <= 4 &&
         request.batch().samples_size() <= 16 && job.planning().layers_per_stage_size() <= 8 &&
         job.planning().typical_samples_size() <= 8;
}

void RequireReason(const absl::Status& status, const v1::PlanBatchRequest& request) {
  const bool reason = !status.message().empty() && !absl::IsInternal(status) && !absl::IsUnknown(status);
  if (status.ok() || reason) return;
  std::fprintf(stderr, "%s\n%s\n", status.ToString().c_str(), request.DebugString().c_str());
  std::abort();
}

void Plan(const v1::PlanBatchRequest& request) {
  if (!request.has_job() || !Validate(request).ok() || !IsSmall(request)) return;
  constexpr int64_t kAsks = 20'000;
  const core::StopFlag flag(kAsks);
  const core::StopToken stop(&flag);
  const auto planner =
      core::Planner::Create(request.job(), core::Planner::Explain::kChanges, core::RunSerially, stop);
  RequireReason(planner.status(), request);
  if (!planner.ok()) return;
  const absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(request.batch(), core::RunSerially, stop);
  RequireReason(plan.status(), request);
  if (plan.ok()) RequireReason(core::ViolationsToStatus(core::CheckPlan(request.batch(), *plan)), request);
}

}  // namespace
}  // namespace penstock

FUZZ_MESSAGE_MUTATOR(penstock::v1::PlanBatchRequest, penstock::Valid)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  penstock::v1::PlanBatchRequest request;
  if (request.ParseFromArray(data, static_cast<int>(size))) penstock::Plan(request);
  return 0;
}
