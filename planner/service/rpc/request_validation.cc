#include "planner/service/rpc/request_validation.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/security/caller.h"
#include "common/names/job_id.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/job_limits.h"
#include "planner/core/contract/limits.h"

namespace penstock {
namespace {

constexpr size_t kMaxAddressBytes = 255;
// Of one ReviseCosts: what 50 iterations of 500 micro-batches on 4 stages report.
constexpr int kMostPasses = 100'000;
constexpr uint32_t kMaxWindow = 4096;
constexpr uint32_t kMinHeartbeatTimeoutMs = 100;
// A day: whoever is silent for longer is lost.
constexpr uint32_t kMaxHeartbeatTimeoutMs = 24 * 3600 * 1000;
// Longer than any sequence; a negative number written into an unsigned field ends up above it.
constexpr uint32_t kMaxTokens = std::numeric_limits<int32_t>::max();

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Whether model, mesh, planning and profile make sense is the planner's to check when the engine makes one.
absl::Status ValidateJob(const v1::JobSpec& job) {
  PENSTOCK_RETURN_IF_ERROR(CheckJobId("job.job_id", job.job_id()));
  if (!job.owner().empty() && !IsOwnerName(job.owner()))
    return Invalid("job.owner must be 1 to 128 letters, digits, '-', '_', '.' and '@', or empty");
  if (job.look_ahead_window() > kMaxWindow) {
    return Invalid("job.look_ahead_window is ", job.look_ahead_window(), ": at most ", kMaxWindow);
  }
  if (job.heartbeat_timeout_ms() != 0 && job.heartbeat_timeout_ms() < kMinHeartbeatTimeoutMs) {
    return Invalid("job.heartbeat_timeout_ms is ", job.heartbeat_timeout_ms(), ": at least ",
                   kMinHeartbeatTimeoutMs, ", or 0 for the default");
  }
  if (job.heartbeat_timeout_ms() > kMaxHeartbeatTimeoutMs) {
    return Invalid("job.heartbeat_timeout_ms is ", job.heartbeat_timeout_ms(), ": at most ",
                   kMaxHeartbeatTimeoutMs, ", a day");
  }
  const uint64_t iterations = job.training().iterations();
  if (iterations != 0 && job.first_iteration() > iterations) {
    return Invalid("job.first_iteration is ", job.first_iteration(), ", after training.iterations ",
                   iterations);
  }
  return core::CheckJobLimits(job);
}

absl::Status ValidateSample(absl::string_view field, const v1::Sample& sample) {
  if (sample.input_tokens() == 0 && sample.target_tokens() == 0) {
    return Invalid(field, " has no tokens: input_tokens and target_tokens are both 0");
  }
  if (sample.input_tokens() > kMaxTokens) {
    return Invalid(field, ".input_tokens is ", sample.input_tokens(), ": not a length (negative?)");
  }
  if (sample.target_tokens() > kMaxTokens) {
    return Invalid(field, ".target_tokens is ", sample.target_tokens(), ": not a length (negative?)");
  }
  if (!std::isfinite(sample.loss_weight()) || sample.loss_weight() < 0)
    return Invalid(field, ".loss_weight is ", sample.loss_weight(), ": a number of at least 0");
  return absl::OkStatus();
}

absl::Status ValidateBatch(const std::string& field, const v1::Batch& batch) {
  if (batch.iteration() > core::kMostIterations) {
    return Invalid(field, ".iteration is ", batch.iteration(), ": at most ", core::kMostIterations);
  }
  if (batch.samples().empty()) return Invalid(field, ".samples is empty: a batch has at least one sample");
  for (int j = 0; j < batch.samples_size(); ++j) {
    PENSTOCK_RETURN_IF_ERROR(ValidateSample(absl::StrCat(field, ".samples[", j, "]"), batch.samples(j)));
  }
  if (!batch.has_validation()) return absl::OkStatus();
  const v1::Batch& validation = batch.validation();
  if (validation.has_validation())
    return Invalid(field, ".validation.validation is set: a validation has none itself");
  if (validation.iteration() != batch.iteration())
    return Invalid(field, ".validation.iteration is ", validation.iteration(), ": that of the batch, ",
                   batch.iteration());
  return ValidateBatch(absl::StrCat(field, ".validation"), validation);
}

// A name, or an address in digits: others connect to it and logs show it.
absl::Status ValidateHost(absl::string_view field, absl::string_view host) {
  if (host.size() > kMaxAddressBytes) return Invalid(field, " has ", host.size(), " bytes, at most 255");
  for (const char c : host) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c)))
      return Invalid(field, ": a host is letters, digits and signs, without spaces");
  }
  return absl::OkStatus();
}

absl::Status ValidateHostAndPort(absl::string_view field, const std::string& address) {
  if (address.empty()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(ValidateHost(field, address));
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == 0 || colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 1 || port > std::numeric_limits<uint16_t>::max()) {
    return Invalid(field, " is '", address, "': must be host:port, with a port of 1 to 65535");
  }
  return absl::OkStatus();
}

// NaN and infinity are what a run that diverges has.
absl::Status ValidateMeasured(absl::string_view field, double value) {
  return value < 0 ? Invalid(field, " is ", value, ": at least 0") : absl::OkStatus();
}

absl::Status ValidateExpertRows(const v1::ReportIterationRequest& request) {
  const int layers = request.expert_rows_size();
  if (layers > static_cast<int>(core::kMostLayers))
    return Invalid("expert_rows has ", layers, " entries: at most ", core::kMostLayers);
  if (request.fullest_expert_rows().empty()) return absl::OkStatus();
  if (request.fullest_expert_rows_size() != layers)
    return Invalid("fullest_expert_rows has ", request.fullest_expert_rows_size(),
                   " entries, but expert_rows has ", layers, ": none, or as many");
  for (int i = 0; i < layers; ++i)
    if (request.fullest_expert_rows(i) > request.expert_rows(i))
      return Invalid("fullest_expert_rows[", i, "] is ", request.fullest_expert_rows(i),
                     ", but all experts of the rank have ", request.expert_rows(i));
  return absl::OkStatus();
}

// `of`: the field that has them, with its dot; "" of the request's own. `finite`: a run whose training loss
// is not ends, and its workers report no iteration; that of a validation is what the parameters make of the
// data.
absl::Status ValidateTasks(absl::string_view of,
                           const google::protobuf::RepeatedPtrField<v1::TaskLoss>& tasks, bool finite) {
  for (int i = 0; i < tasks.size(); ++i) {
    const v1::TaskLoss& task = tasks[i];
    const std::string field = absl::StrCat(of, "tasks[", i, "]");
    if (i > 0 && task.task() <= tasks[i - 1].task())
      return Invalid(field, ".task is ", task.task(), ": not above the one before");
    if ((finite && !std::isfinite(task.loss())) || task.loss() < 0)
      return Invalid(field, ".loss is ", task.loss(), ": a number of at least 0");
    if (!std::isfinite(task.weight()) || task.weight() < 0)
      return Invalid(field, ".weight is ", task.weight(), ": a number of at least 0");
  }
  return absl::OkStatus();
}

absl::Status ValidatePartNorms(const google::protobuf::RepeatedPtrField<v1::PartNorm>& parts) {
  for (int i = 0; i < parts.size(); ++i) {
    const v1::PartNorm& part = parts[i];
    const std::string field = absl::StrCat("part_norms[", i, "]");
    if (part.part() == v1::MODEL_PART_UNSPECIFIED || !v1::ModelPart_IsValid(part.part()))
      return Invalid(field, ".part is ", static_cast<int>(part.part()), ": not a part of a model");
    if (i > 0 && part.part() <= parts[i - 1].part())
      return Invalid(field, ".part is ", v1::ModelPart_Name(part.part()), ": not above the one before");
    PENSTOCK_RETURN_IF_ERROR(ValidateMeasured(absl::StrCat(field, ".norm"), part.norm()));
  }
  return absl::OkStatus();
}

absl::Status ValidateInstructions(
    absl::string_view of, const google::protobuf::RepeatedPtrField<v1::MeasuredInstruction>& measured) {
  for (int i = 0; i < measured.size(); ++i) {
    if (measured[i].start_ns() < 0) return Invalid(of, "instructions[", i, "].start_ns is negative");
    if (measured[i].duration_ns() < 0) return Invalid(of, "instructions[", i, "].duration_ns is negative");
    if (measured[i].exchange_ns() < 0 || measured[i].exchange_ns() > measured[i].duration_ns())
      return Invalid(of, "instructions[", i, "].exchange_ns is ", measured[i].exchange_ns(),
                     ": at least 0, at most its duration_ns, ", measured[i].duration_ns());
  }
  return absl::OkStatus();
}

absl::Status ValidateReport(const v1::ValidationReport& validation) {
  if (validation.duration_ns() < 0) return Invalid("validation.duration_ns is negative");
  if (validation.peak_memory_bytes() < 0) return Invalid("validation.peak_memory_bytes is negative");
  PENSTOCK_RETURN_IF_ERROR(ValidateInstructions("validation.", validation.instructions()));
  return ValidateTasks("validation.", validation.tasks(), /*finite=*/false);
}

}  // namespace

absl::Status Validate(const v1::RegisterJobRequest& request) {
  if (!request.has_job()) return Invalid("job is missing");
  return ValidateJob(request.job());
}

absl::Status Validate(const v1::SubmitBatchesRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckJobId("job_id", request.job_id()));
  if (request.batches().empty()) return Invalid("batches is empty: submit at least one");
  const uint64_t first = request.batches(0).iteration();
  for (int i = 0; i < request.batches_size(); ++i) {
    const std::string field = absl::StrCat("batches[", i, "]");
    if (request.batches(i).iteration() != first + i) {
      return Invalid(field, ".iteration is ", request.batches(i).iteration(), ", expected ", first + i,
                     ": iterations must be consecutive");
    }
    PENSTOCK_RETURN_IF_ERROR(ValidateBatch(field, request.batches(i)));
  }
  return absl::OkStatus();
}

absl::Status Validate(const v1::PlanBatchRequest& request) {
  switch (request.source_case()) {
    case v1::PlanBatchRequest::kJob:
      PENSTOCK_RETURN_IF_ERROR(ValidateJob(request.job()));
      break;
    case v1::PlanBatchRequest::kJobId:
      PENSTOCK_RETURN_IF_ERROR(CheckJobId("job_id", request.job_id()));
      break;
    case v1::PlanBatchRequest::SOURCE_NOT_SET:
      return Invalid("neither job_id nor job is set: one of them is needed");
  }
  return ValidateBatch("batch", request.batch());
}

absl::Status Validate(const v1::ReviseCostsRequest& request) {
  if (!request.has_job()) return Invalid("job is missing");
  PENSTOCK_RETURN_IF_ERROR(ValidateJob(request.job()));
  if (request.passes().empty()) return Invalid("passes is empty: report at least one");
  if (request.passes_size() > kMostPasses)
    return Invalid("passes has ", request.passes_size(), " entries: at most ", kMostPasses);
  for (int i = 0; i < request.passes_size(); ++i) {
    if (request.passes(i).duration_ns() <= 0) return Invalid("passes[", i, "].duration_ns is not above 0");
    if (request.passes(i).samples().empty()) return Invalid("passes[", i, "].samples is empty");
  }
  return absl::OkStatus();
}

absl::Status Validate(const v1::StreamProgramsRequest& request) {
  return CheckJobId("job_id", request.job_id());
}

absl::Status Validate(const v1::ReportIterationRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckJobId("job_id", request.job_id()));
  if (request.duration_ns() < 0) return Invalid("duration_ns is negative");
  if (request.waited_for_program_ns() < 0) return Invalid("waited_for_program_ns is negative");
  if (request.started_unix_ns() < 0) return Invalid("started_unix_ns is negative");
  if (request.peak_memory_bytes() < 0) return Invalid("peak_memory_bytes is negative");
  if (request.lone_pass_core_ns() < 0) return Invalid("lone_pass_core_ns is negative");
  if (request.lone_pass_ns() < request.lone_pass_core_ns())
    return Invalid("lone_pass_ns is ", request.lone_pass_ns(), ", but lone_pass_core_ns is ",
                   request.lone_pass_core_ns());
  PENSTOCK_RETURN_IF_ERROR(ValidateMeasured("gradient_norm", request.gradient_norm()));
  PENSTOCK_RETURN_IF_ERROR(ValidatePartNorms(request.part_norms()));
  PENSTOCK_RETURN_IF_ERROR(ValidateMeasured("router_balance_loss", request.router_balance_loss()));
  PENSTOCK_RETURN_IF_ERROR(ValidateMeasured("router_z_loss", request.router_z_loss()));
  if (request.dropped_expert_rows() > request.routed_expert_rows())
    return Invalid("dropped_expert_rows is ", request.dropped_expert_rows(), ", but routed_expert_rows is ",
                   request.routed_expert_rows());
  PENSTOCK_RETURN_IF_ERROR(ValidateExpertRows(request));
  if (!std::isfinite(request.learning_rate()) || request.learning_rate() < 0) {
    return Invalid("learning_rate is ", request.learning_rate(), ": a number of at least 0");
  }
  PENSTOCK_RETURN_IF_ERROR(ValidateInstructions("", request.instructions()));
  PENSTOCK_RETURN_IF_ERROR(ValidateTasks("", request.tasks(), /*finite=*/true));
  return request.has_validation() ? ValidateReport(request.validation()) : absl::OkStatus();
}

absl::Status Validate(const v1::RegisterWorkerRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckJobId("job_id", request.job_id()));
  if (request.host().empty()) return Invalid("host is empty: other workers need it to reach this one");
  return ValidateHost("host", request.host());
}

absl::Status Validate(const v1::HeartbeatRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckJobId("job_id", request.job_id()));
  return ValidateHostAndPort("rendezvous_address", request.rendezvous_address());
}

absl::Status Validate(const v1::GetJobRequest& request) { return CheckJobId("job_id", request.job_id()); }

absl::Status Validate(const v1::GetIterationRequest& request) {
  return CheckJobId("job_id", request.job_id());
}

absl::Status Validate(const v1::DeleteJobRequest& request) { return CheckJobId("job_id", request.job_id()); }

absl::Status Validate(const v1::ChangeStrategiesRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckJobId("job_id", request.job_id()));
  PENSTOCK_RETURN_IF_ERROR(core::CheckAtMost("strategies", static_cast<uint64_t>(request.strategies_size()),
                                             core::kMostStrategies));
  if (request.typical_samples().empty() && request.typical_batch_size() > 0)
    return Invalid("typical_batch_size is ", request.typical_batch_size(), ", but typical_samples is empty");
  PENSTOCK_RETURN_IF_ERROR(core::CheckAtMost(
      "typical_samples", static_cast<uint64_t>(request.typical_samples_size()), core::kMostTypicalSamples));
  return core::CheckAtMost("typical_batch_size", request.typical_batch_size(), core::kMostSamples);
}

absl::Status Validate(const v1::DrainJobRequest& request) { return CheckJobId("job_id", request.job_id()); }

}  // namespace penstock
