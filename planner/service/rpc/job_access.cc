#include "planner/service/rpc/job_access.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "planner/service/engine/payer.h"

namespace penstock {
namespace {

constexpr std::array<absl::string_view, 3> kReading = {"GetJob", "ListJobs", "GetIteration"};
constexpr std::array<absl::string_view, 4> kRunning = {"RegisterWorker", "Heartbeat", "StreamPrograms",
                                                       "ReportIteration"};

template <size_t count>
bool IsOneOf(const std::array<absl::string_view, count>& methods, absl::string_view method) {
  return std::ranges::find(methods, method) != methods.end();
}

bool MayCallPlanner(Role role, absl::string_view method) {
  switch (role) {
    case Role::kNobody:
      return false;
    case Role::kViewer:
      return IsOneOf(kReading, method);
    case Role::kWorker:
      return IsOneOf(kReading, method) || IsOneOf(kRunning, method);
    case Role::kClient:
    case Role::kOperator:
      return true;
  }
  return false;
}

}  // namespace

bool MayCall(Role role, absl::string_view method) {
  if (absl::StartsWith(method, "/grpc.health.v1.Health/")) return true;
  if (absl::ConsumePrefix(&method, "/penstock.v1.PlannerService/")) return MayCallPlanner(role, method);
  if (absl::StartsWith(method, "/grpc.reflection.")) return role != Role::kNobody;
  return role == Role::kOperator;
}

Caller JobAccess::CallerOf(const grpc::CallbackServerContext& context) const {
  if (control_ == nullptr) return {.role = Role::kOperator, .owner = {}};
  return control_->Identify(context.client_metadata(), *context.auth_context());
}

std::string JobAccess::PayerOfCaller(const grpc::CallbackServerContext& context) const {
  if (const Caller caller = CallerOf(context); !caller.owner.empty()) return PayerOfOwner(caller.owner);
  // "ipv4:10.0.0.5:41234": each connection has a port of its own.
  const std::string peer = context.peer();
  return peer.substr(0, peer.rfind(':'));
}

bool JobAccess::MayTouch(const Caller& caller, const v1::JobSpec& job) {
  if (caller.role == Role::kOperator || job.owner().empty() || job.owner() == caller.owner) return true;
  return caller.role == Role::kViewer && caller.owner.empty();
}

absl::Status JobAccess::Check(const grpc::CallbackServerContext& context, const v1::JobSpec& job) const {
  if (MayTouch(CallerOf(context), job)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("job '", job.job_id(), "' is somebody else's"));
}

absl::StatusOr<std::string> JobAccess::OwnerOf(const grpc::CallbackServerContext& context,
                                               const std::string& asked) const {
  const Caller caller = CallerOf(context);
  if (caller.role == Role::kOperator || asked == caller.owner) return asked;
  if (asked.empty()) return caller.owner;
  return absl::PermissionDeniedError(
      absl::StrCat("job.owner is '", asked, "', which is not who calls: leave it empty"));
}

}  // namespace penstock
