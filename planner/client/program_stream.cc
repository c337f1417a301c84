#include "penstock/client/program_stream.h"

#include "absl/time/clock.h"
#include "common/compact/instruction_columns.h"
#include "common/compact/packed_program.h"
#include "common/grpc/channel.h"
#include "common/grpc/status_conversion.h"

namespace penstock {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(200);

}  // namespace

ProgramStream::ProgramStream(const std::shared_ptr<grpc::Channel>& channel,
                             const v1::StreamProgramsRequest& request, absl::Duration deadline)
    : channel_(channel), stub_(v1::PlannerService::NewStub(channel)) {
  if (deadline != absl::InfiniteDuration()) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  }
  v1::StreamProgramsRequest asked = request;
  asked.set_compact_version(kCompactVersion);
  reader_ = stub_->StreamPrograms(&context_, asked);
}

ProgramStream::~ProgramStream() {
  if (end_.has_value()) return;
  context_.TryCancel();
  // gRPC wants a stream read to its end.
  v1::StreamProgramsResponse ignored;
  while (reader_->Read(&ignored)) {
  }
  (void)reader_->Finish();
}

absl::StatusOr<std::optional<v1::StreamProgramsResponse>> ProgramStream::Next() {
  if (!end_.has_value()) {
    v1::StreamProgramsResponse program;
    if (reader_->Read(&program)) {
      if (absl::Status unpacked = UnpackProgram(&program); !unpacked.ok()) return unpacked;
      return program;
    }
    const grpc::Status end = reader_->Finish();
    end_ = cancelled_ ? FromGrpcStatus(end) : FromStatusOfCall(end);
    // So that whoever opens one stream after another neither spins nor leaves the connections alone.
    if (absl::IsUnavailable(*end_)) PauseUntilConnected(channel_.get(), kPause);
  }
  if (!end_->ok()) return *end_;
  return std::optional<v1::StreamProgramsResponse>();
}

void ProgramStream::Cancel() {
  cancelled_ = true;
  context_.TryCancel();
}

}  // namespace penstock
