// penstock.v1.PlannerOperations over gRPC: what operators do with a planner. That callers are operators is
// looked at before a call reaches it (MayCall).
#pragma once

#include "penstock/v1/operations.grpc.pb.h"
#include "planner/service/rpc/audited_calls.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

class PlannerOperationsService final : public v1::PlannerOperations::CallbackService {
 public:
  // `engines`: who serves; not owned.
  PlannerOperationsService(const EngineSlot* engines, AuditedCalls audit)
      : engines_(engines), audit_(std::move(audit)) {}

  grpc::ServerWriteReactor<v1::BackUpResponse>* BackUp(grpc::CallbackServerContext* context,
                                                       const v1::BackUpRequest* request) override;
  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context,
                                        const v1::SetLogLevelRequest* request,
                                        v1::SetLogLevelResponse* response) override;

 private:
  const EngineSlot* const engines_;
  const AuditedCalls audit_;
};

}  // namespace penstock
