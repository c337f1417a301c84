#include "planner/service/rpc/standby_answers.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/status_conversion.h"
#include "penstock/client/standby.h"
#include "planner/service/state/job_status.h"

namespace penstock {
namespace {

// The refusal, with why the store did not answer in its place.
absl::Status WithReason(const absl::Status& refusal, const absl::Status& why) {
  const absl::Status status(refusal.code(),
                            absl::StrCat(refusal.message(), "; its store does not tell: ", why.message()));
  const auto leader = LeaderNamedBy(refusal);
  return leader.has_value() ? WithLeader(status, *leader) : status;
}

// gRPC ends the process for a value with other characters, and any planner may write its name into the lease.
std::string MetadataOf(std::string text) {
  for (char& c : text)
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) c = '?';
  return text;
}

}  // namespace

void NameLeader(grpc::CallbackServerContext* context, const absl::Status& refusal) {
  if (const auto leader = LeaderNamedBy(refusal))
    context->AddTrailingMetadata(kStandbyKey, MetadataOf(*leader));
}

grpc::ServerUnaryReactor* StandbyAnswers::FromStore(grpc::CallbackServerContext* context,
                                                    const absl::Status& refusal, Answer answer) const {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (reader_ == nullptr) {
    NameLeader(context, refusal);
    reactor->Finish(ToGrpcStatus(refusal));
    return reactor;
  }
  // The context lives until Finish.
  reader_->Read([context, reactor, refusal,
                 answer = std::move(answer)](const absl::StatusOr<StandbyReader::Jobs>& read) {
    if (!read.ok()) {
      NameLeader(context, refusal);
      return reactor->Finish(ToGrpcStatus(WithReason(refusal, read.status())));
    }
    const absl::Status status = answer(*read->jobs);
    context->AddTrailingMetadata(kStandbyKey, MetadataOf(LeaderNamedBy(refusal).value_or("")));
    context->AddTrailingMetadata(kStandbyAgeKey, absl::StrCat(absl::ToInt64Milliseconds(read->age)));
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* StandbyAnswers::GetJob(grpc::CallbackServerContext* context,
                                                 const v1::GetJobRequest* request,
                                                 v1::GetJobResponse* response,
                                                 const absl::Status& refusal) const {
  return FromStore(context, refusal, [this, context, request, response](const StoredJobs& jobs) {
    const JobState* const job = jobs.Find(request->job_id());
    if (job == nullptr)
      return absl::NotFoundError(absl::StrCat("job_id: no job '", request->job_id(), "' is registered"));
    if (absl::Status status = access_.Check(*context, job->spec()); !status.ok()) return status;
    *response = DescriptionOf(*job, request->from_iteration());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* StandbyAnswers::ListJobs(grpc::CallbackServerContext* context,
                                                   v1::ListJobsResponse* response,
                                                   const absl::Status& refusal) const {
  return FromStore(context, refusal, [this, context, response](const StoredJobs& jobs) {
    const Caller caller = access_.CallerOf(*context);
    for (const auto& [id, job] : jobs.all())
      if (JobAccess::MayTouch(caller, job.spec())) *response->add_jobs() = StatusOf(job);
    return absl::OkStatus();
  });
}

}  // namespace penstock
