#include "worker/agent/planner_link.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/compact/instruction_columns.h"
#include "common/compact/packed_program.h"
#include "common/grpc/status_conversion.h"
#include "common/grpc/trailing_metadata.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "penstock/client/finished_job.h"
#include "penstock/v1/planner_service.grpc.pb.h"
#include "worker/agent/call_times.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

void SetTimeout(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

// While a planner is gone, the call waits for it up to its deadline instead of failing at once: a channel on
// which nobody waits looks at its connections every 5 s only, by when a planner that came back has given the
// worker up.
void AwaitPlanner(grpc::ClientContext& context) { context.set_wait_for_ready(true); }

// Trailing metadata becomes a payload.
absl::Status WithFinishedJobOf(const grpc::ClientContext& context, absl::Status status) {
  const std::optional<uint64_t> iterations = TrailingNumberOf(context, kFinishedJobKey);
  if (status.ok() || !iterations.has_value()) return status;
  return WithFinishedJob(std::move(status), *iterations);
}

// All requests carry the same four fields.
template <typename Request>
Request RequestFrom(const WorkerIdentity& self) {
  Request request;
  request.set_job_id(self.job_id);
  request.set_rank(self.rank);
  request.set_incarnation(self.incarnation);
  request.set_epoch(self.epoch);
  return request;
}

EpochState EpochStateFromProto(v1::EpochState state) {
  switch (state) {
    case v1::EPOCH_STATE_READY:
      return EpochState::kReady;
    case v1::EPOCH_STATE_FAILED:
      return EpochState::kFailed;
    case v1::EPOCH_STATE_FINISHED:
      return EpochState::kFinished;
    default:
      return EpochState::kForming;
  }
}

// `to`: a report, or that of a validation.
template <typename Report>
void AddInstructions(const std::vector<MeasuredInstruction>& instructions, Report& to) {
  for (const MeasuredInstruction& measured : instructions) {
    v1::MeasuredInstruction* instruction = to.add_instructions();
    instruction->set_id(measured.id);
    instruction->set_start_ns(measured.start_ns);
    instruction->set_duration_ns(measured.duration_ns);
    if (measured.exchange_ns.has_value()) instruction->set_exchange_ns(*measured.exchange_ns);
  }
}

template <typename Report>
void AddTasks(const std::vector<MeasuredTask>& tasks, Report& to) {
  for (const MeasuredTask& measured : tasks) {
    v1::TaskLoss* task = to.add_tasks();
    task->set_task(measured.task);
    task->set_loss(measured.loss);
    task->set_weight(measured.weight);
  }
}

v1::ValidationReport ToProto(const ValidationReport& validation) {
  v1::ValidationReport proto;
  AddInstructions(validation.instructions, proto);
  proto.set_duration_ns(validation.duration_ns);
  proto.set_loss(validation.loss);
  AddTasks(validation.tasks, proto);
  proto.set_peak_memory_bytes(validation.peak_memory_bytes);
  return proto;
}

v1::ReportIterationRequest ToProto(const WorkerIdentity& self, const IterationReport& report) {
  auto request = RequestFrom<v1::ReportIterationRequest>(self);
  request.set_iteration(report.iteration);
  AddInstructions(report.instructions, request);
  request.set_duration_ns(report.duration_ns);
  request.set_waited_for_program_ns(report.waited_for_program_ns);
  request.set_started_unix_ns(report.started_unix_ns);
  request.set_lone_pass_ns(report.lone_pass_ns);
  request.set_lone_pass_core_ns(report.lone_pass_core_ns);
  request.set_loss(report.loss);
  request.set_router_balance_loss(report.router_balance_loss);
  request.set_router_z_loss(report.router_z_loss);
  request.mutable_expert_rows()->Assign(report.expert_rows.begin(), report.expert_rows.end());
  request.mutable_fullest_expert_rows()->Assign(report.fullest_expert_rows.begin(),
                                                report.fullest_expert_rows.end());
  request.set_routed_expert_rows(report.routed_expert_rows);
  request.set_dropped_expert_rows(report.dropped_expert_rows);
  request.set_gradient_norm(report.gradient_norm);
  for (const MeasuredPart& part : report.parts) {
    v1::PartNorm* norm = request.add_part_norms();
    norm->set_part(static_cast<v1::ModelPart>(part.part));
    norm->set_norm(part.norm);
  }
  request.set_learning_rate(report.learning_rate);
  request.set_peak_memory_bytes(report.peak_memory_bytes);
  AddTasks(report.tasks, request);
  if (report.validation.has_value()) *request.mutable_validation() = ToProto(*report.validation);
  return request;
}

class GrpcProgramStream : public ProgramStream {
 public:
  GrpcProgramStream(v1::PlannerService::Stub& stub, const v1::StreamProgramsRequest& request, JobConfig* job)
      : stub_(stub), request_(request), job_(job) {}

  ~GrpcProgramStream() override {
    if (reader_ == nullptr) return;
    context_.TryCancel();
    reader_->Finish();
  }

  absl::StatusOr<std::optional<Program>> Read() override {
    // Opened here and not in the constructor: opening blocks while the channel connects, and Cancel must end
    // that.
    if (reader_ == nullptr) reader_ = stub_.StreamPrograms(&context_, request_);
    v1::StreamProgramsResponse response;
    if (reader_->Read(&response)) {
      PENSTOCK_RETURN_IF_ERROR(AnnotateError(UnpackProgram(&response), "StreamPrograms"));
      PENSTOCK_RETURN_IF_ERROR(LearnStrategies(response));
      PENSTOCK_ASSIGN_OR_RETURN(Program program, ProgramFromProto(response, *job_));
      return program;
    }
    const grpc::Status ended = reader_->Finish();
    reader_ = nullptr;
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(FromGrpcStatus(ended), "StreamPrograms"));
    return std::nullopt;
  }

  void Cancel() override { context_.TryCancel(); }

 private:
  absl::Status LearnStrategies(const v1::StreamProgramsResponse& response) {
    if (response.has_new_topology())
      PENSTOCK_RETURN_IF_ERROR(LearnStrategy(response.strategy(), response.new_topology()));
    const v1::StreamProgramsResponse& validation = response.validation();
    if (!validation.has_new_topology()) return absl::OkStatus();
    return LearnStrategy(validation.strategy(), validation.new_topology());
  }

  // The stream says who is where; the degrees of its meshes are those of the job's specification.
  absl::Status LearnStrategy(uint32_t number, const v1::Topology& topology) {
    v1::GetJobRequest request;
    request.set_job_id(request_.job_id());
    // None of its iterations.
    request.set_from_iteration(std::numeric_limits<uint64_t>::max());
    grpc::ClientContext context;
    SetTimeout(context, kCallTimeout);
    v1::GetJobResponse response;
    const absl::Status asked = FromStatusOfCall(stub_.GetJob(&context, request, &response));
    // The stream is opened again then.
    if (absl::IsDeadlineExceeded(asked)) return absl::UnavailableError(asked.message());
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(asked, "GetJob"));
    if (number >= static_cast<uint32_t>(response.job().strategies_size())) {
      return absl::InvalidArgumentError(absl::StrCat("StreamPrograms: a program of strategy ", number,
                                                     ", but the job has ", response.job().strategies_size()));
    }
    return AddStrategy(number, response.job().strategies(static_cast<int>(number)), topology, *job_);
  }

  v1::PlannerService::Stub& stub_;
  const v1::StreamProgramsRequest request_;
  JobConfig* const job_;
  grpc::ClientContext context_;
  // Null before the first Read and after the end.
  std::unique_ptr<grpc::ClientReader<v1::StreamProgramsResponse>> reader_;
};

class GrpcPlannerLink : public PlannerLink {
 public:
  GrpcPlannerLink(const std::string& planner, const ChannelSecurity& security)
      : stub_(v1::PlannerService::NewStub(CreateClientChannel(planner, {}, Among::kLeader, security))) {}

  absl::StatusOr<RegistrationAnswer> Register(const RegistrationRequest& request,
                                              absl::Duration timeout) override {
    v1::RegisterWorkerRequest message;
    message.set_job_id(request.job_id);
    message.set_incarnation(request.incarnation);
    message.set_host(request.host);
    message.set_rank(request.rank.has_value() ? static_cast<int32_t>(*request.rank) : -1);
    message.set_first_iteration(request.first_iteration);
    grpc::ClientContext context;
    SetTimeout(context, timeout);
    v1::RegisterWorkerResponse response;
    const grpc::Status status = stub_->RegisterWorker(&context, message, &response);
    PENSTOCK_RETURN_IF_ERROR(
        AnnotateError(WithFinishedJobOf(context, FromStatusOfCall(status)), "RegisterWorker"));
    PENSTOCK_ASSIGN_OR_RETURN(JobConfig job, JobFromProto(response.job()));
    PENSTOCK_ASSIGN_OR_RETURN(job.topology, TopologyFromProto(response.topology(), job));
    PENSTOCK_RETURN_IF_ERROR(AddStrategyTopologies(response, job));
    return RegistrationAnswer{.registration = {.rank = response.rank(),
                                               .epoch = response.epoch(),
                                               .epoch_secret = response.epoch_secret(),
                                               .job = std::move(job)},
                              .heartbeat_interval = absl::Milliseconds(response.heartbeat_interval_ms())};
  }

  absl::StatusOr<BeatAnswer> Heartbeat(const WorkerIdentity& self, const Beat& beat,
                                       absl::Duration timeout) override {
    auto request = RequestFrom<v1::HeartbeatRequest>(self);
    request.set_rendezvous_address(beat.rendezvous_address);
    request.set_failure(beat.failure);
    request.set_leaving(beat.leaving);
    grpc::ClientContext context;
    SetTimeout(context, timeout);
    AwaitPlanner(context);
    v1::HeartbeatResponse response;
    const grpc::Status status = stub_->Heartbeat(&context, request, &response);
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(FromStatusOfCall(status), "Heartbeat"));
    return BeatAnswer{.state = EpochStateFromProto(response.state()),
                      .failure = response.failure(),
                      .rendezvous = {.address = response.rendezvous_address(),
                                     .hosts = {response.hosts().begin(), response.hosts().end()}}};
  }

  absl::Status Report(const WorkerIdentity& self, const IterationReport& report,
                      absl::Duration timeout) override {
    grpc::ClientContext context;
    SetTimeout(context, timeout);
    AwaitPlanner(context);
    v1::ReportIterationResponse response;
    const grpc::Status status = stub_->ReportIteration(&context, ToProto(self, report), &response);
    return AnnotateError(FromStatusOfCall(status), "ReportIteration");
  }

  absl::StatusOr<uint64_t> Completed(const WorkerIdentity& self, absl::Duration timeout) override {
    v1::GetJobRequest request;
    request.set_job_id(self.job_id);
    // Without summaries.
    request.set_from_iteration(std::numeric_limits<uint64_t>::max());
    grpc::ClientContext context;
    SetTimeout(context, timeout);
    AwaitPlanner(context);
    v1::GetJobResponse response;
    const grpc::Status status = stub_->GetJob(&context, request, &response);
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(FromStatusOfCall(status), "GetJob"));
    if (response.status().epoch() == self.epoch) return response.status().completed_iteration();
    return absl::AbortedError(
        absl::StrCat("the job is in epoch ", response.status().epoch(), ", not in ", self.epoch));
  }

  std::unique_ptr<ProgramStream> StreamPrograms(const WorkerIdentity& self, JobConfig* job,
                                                uint64_t from_iteration) override {
    auto request = RequestFrom<v1::StreamProgramsRequest>(self);
    request.set_from_iteration(from_iteration);
    request.set_compact_version(kCompactVersion);
    request.set_takes_new_strategies(true);
    return std::make_unique<GrpcProgramStream>(*stub_, request, job);
  }

 private:
  const std::unique_ptr<v1::PlannerService::Stub> stub_;
};

}  // namespace

std::unique_ptr<PlannerLink> PlannerLink::Connect(const std::string& planner,
                                                  const ChannelSecurity& security) {
  return std::make_unique<GrpcPlannerLink>(planner, security);
}

}  // namespace penstock::worker
