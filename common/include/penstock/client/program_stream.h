// Reads the programs of a rank: see PlannerClient::StreamPrograms.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/planner_service.grpc.pb.h"

namespace penstock {

class ProgramStream {
 public:
  ProgramStream(const std::shared_ptr<grpc::Channel>& channel, const v1::StreamProgramsRequest& request,
                absl::Duration deadline);
  // Cancels. Not while another thread is in Next().
  ~ProgramStream();
  ProgramStream(const ProgramStream&) = delete;
  ProgramStream& operator=(const ProgramStream&) = delete;

  // Blocks until the next program is there; nullopt at the end of a finished job.
  // One thread at a time. After nullopt or an error the answer stays the same.
  // Possible errors: those of StreamPrograms; CANCELLED (after Cancel), UNAVAILABLE (the planner is gone:
  // open a new stream from the first iteration that is missing; said when there is a planner again, or after
  // 200 ms), DEADLINE_EXCEEDED.
  absl::StatusOr<std::optional<v1::StreamProgramsResponse>> Next();

  // Makes Next() end soon. Any thread.
  void Cancel();

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::PlannerService::Stub> stub_;
  grpc::ClientContext context_;
  std::atomic<bool> cancelled_ = false;
  std::unique_ptr<grpc::ClientReader<v1::StreamProgramsResponse>> reader_;
  // How the stream ended, once it has.
  std::optional<absl::Status> end_;
};

}  // namespace penstock
