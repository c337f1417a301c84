// Every request of the service: whether it is well-formed, and whether a job makes sense. The first byte says
// which request the others are.
#include <iterator>
#include <memory>
#include <string>

#include "common/status/status_macros.h"
#include "planner/core/planner.h"
#include "planner/service/rpc/request_validation.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

using google::protobuf::Message;

v1::RegisterJobRequest Registration(const v1::JobSpec& job) {
  v1::RegisterJobRequest request;
  *request.mutable_job() = job;
  return request;
}

v1::PlanBatchRequest WhatIf() {
  v1::PlanBatchRequest request;
  *request.mutable_job() = core::GptJob(2, 2, v1::POLICY_PACKED);
  *request.mutable_batch() = MakeBatch(3);
  return request;
}

template <typename Request>
Request OfJob() {
  Request request;
  request.set_job_id("job");
  return request;
}

absl::Status Judge(const v1::RegisterJobRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(Validate(request));
  return core::Planner::CheckJob(request.job());
}

absl::Status Judge(const v1::PlanBatchRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(Validate(request));
  return request.has_job() ? core::Planner::CheckJob(request.job()) : absl::OkStatus();
}

template <typename Request>
absl::Status Judge(const Request& request) {
  return Validate(request);
}

struct Kind {
  std::unique_ptr<Message> valid;
  absl::Status (*judge)(const Message& request);
};

template <typename Request>
Kind Of(const Request& valid) {
  return {std::make_unique<Request>(valid),
          [](const Message& request) { return Judge(static_cast<const Request&>(request)); }};
}

const Kind& KindOf(uint8_t number) {
  static const Kind* const kinds = new Kind[]{Of(Registration(core::GptJob(2, 2, v1::POLICY_DYNAMIC))),
                                              Of(Registration(core::T5Job(4, 1, v1::POLICY_PADDING))),
                                              Of(WhatIf()),
                                              Of(MakeSubmission("job", 3, 5)),
                                              Of(MakeRegistration(7)),
                                              Of(MakeHeartbeat(0, 1, 1)),
                                              Of(MakeReport(1, 2, 3, 4)),
                                              Of(OfJob<v1::StreamProgramsRequest>()),
                                              Of(OfJob<v1::GetJobRequest>()),
                                              Of(OfJob<v1::GetIterationRequest>()),
                                              Of(OfJob<v1::DrainJobRequest>()),
                                              Of(OfJob<v1::DeleteJobRequest>()),
                                              Of(OfJob<v1::ChangeStrategiesRequest>())};
  constexpr size_t kKinds = 13;
  return kinds[number % kKinds];
}

}  // namespace
}  // namespace penstock

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  penstock::MessageMutator mutator(seed);
  if (mutator.Below(10) == 0) return LLVMFuzzerMutate(data, size, max_size);
  if (size == 0 || mutator.Below(20) == 0) data[0] = static_cast<uint8_t>(mutator.Below(256));
  const auto& kind = penstock::KindOf(data[0]);
  const std::unique_ptr<google::protobuf::Message> request(kind.valid->New());
  constexpr size_t kNothing = 3;
  if (size <= kNothing || !request->ParseFromArray(data + 1, static_cast<int>(size) - 1))
    request->CopyFrom(*kind.valid);
  for (uint64_t changes = mutator.Below(4); changes > 0; --changes) mutator.Apply(*request);
  return 1 + penstock::fuzz::Write(*request, data + 1, max_size - 1);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto& kind = penstock::KindOf(data[0]);
  const std::unique_ptr<google::protobuf::Message> request(kind.valid->New());
  if (!request->ParseFromArray(data + 1, static_cast<int>(size) - 1)) return 0;
  const absl::Status status = kind.judge(*request);
  // Whatever is wrong is named.
  if (!status.ok() && (status.message().empty() || absl::IsInternal(status))) std::abort();
  return 0;
}
