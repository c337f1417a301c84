#include "planner/service/rpc/planner_operations_service.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc/pull_stream.h"
#include "common/grpc/status_conversion.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/rpc/backup_source.h"

namespace penstock {
namespace {

using BackupStream = PullStream<v1::BackUpResponse>;

// Of a copy that its engine outlives.
absl::StatusOr<BackupStream::Source> BackupOf(const EngineSlot& engines) {
  PENSTOCK_ASSIGN_OR_RETURN(EnginePtr engine, engines.ForJobs());
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<StoreCopy> copy, engine->CopyStore());
  // Shared only because std::function wants to be copyable.
  return [engine = std::move(engine),
          source = std::make_shared<BackupSource>(std::move(copy))]() -> BackupStream::Item {
    absl::StatusOr<std::optional<v1::BackUpResponse>> next = source->Next();
    if (!next.ok()) return next.status();
    if (!next->has_value()) return absl::OkStatus();
    return **std::move(next);
  };
}

}  // namespace

grpc::ServerWriteReactor<v1::BackUpResponse>* PlannerOperationsService::BackUp(
    grpc::CallbackServerContext* context, const v1::BackUpRequest*) {
  auto stream = BackupStream::Create();
  absl::StatusOr<BackupStream::Source> source = BackupOf(*engines_);
  audit_.Ended(*context, "BackUp", "", source.status());
  if (!source.ok()) source = [status = source.status()]() -> BackupStream::Item { return status; };
  stream->Start(*std::move(source));
  return stream.get();
}

grpc::ServerUnaryReactor* PlannerOperationsService::SetLogLevel(grpc::CallbackServerContext* context,
                                                                const v1::SetLogLevelRequest* request,
                                                                v1::SetLogLevelResponse* response) {
  absl::Status status;
  if (const std::optional<LogLevel> level = LogLevelFromName(request->level()); level.has_value()) {
    response->set_before(std::string(LogLevelName(penstock::SetMinimumLogLevel(*level))));
  } else {
    status = absl::InvalidArgumentError(
        absl::StrCat("level is '", request->level(), "': use debug, info, warning or error"));
  }
  audit_.Ended(*context, "SetLogLevel", "", status);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace penstock
