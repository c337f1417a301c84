// Calls a method of the planner with bytes that no generated class would write.
//
//   CallRaw(*CreateClientChannel(address), "SubmitBatches", "\xff");
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/grpc/status_conversion.h"

namespace penstock {

// How the call ended; what was answered is dropped. A stream is read for one message alone. Blocks.
inline absl::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                            const std::string& request, absl::Duration deadline = absl::Seconds(20)) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  const grpc::Slice slice(request);
  const auto call = stub.PrepareUnaryCall(&context, "/penstock.v1.PlannerService/" + method,
                                          grpc::ByteBuffer(&slice, 1), &queue);
  grpc::ByteBuffer response;
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  call->StartCall();
  call->Finish(&response, &status, &tag);
  queue.Next(&tag, &ok);
  return FromGrpcStatus(status);
}

}  // namespace penstock
