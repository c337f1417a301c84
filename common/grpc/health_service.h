// grpc.health.v1 with a Watch that ends at shutdown (gRPC's own holds Server::Shutdown for its whole
// deadline).
//
//   HealthService health({"penstock.v1.PlannerService"});
//   health.SetServing(true);
//   ...
//   health.SetServing(false);   // readiness off: probes and load balancers see NOT_SERVING
//   health.Shutdown();          // ends open watches with UNAVAILABLE; then stop the server
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/grpc/pull_stream.h"
#include "common/sync/sync.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace penstock {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // The services by full name that it answers for, beside "" (the whole server). All share one state, at
  // first NOT_SERVING.
  explicit HealthService(std::vector<std::string> services);

  void SetServing(bool serving);
  // Idempotent. Later watches end at once.
  void Shutdown();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  using WatchStream = PullStream<grpc::health::v1::HealthCheckResponse>;

  bool IsKnown(const std::string& service) const;
  grpc::health::v1::HealthCheckResponse::ServingStatus StatusOf(const std::string& service);
  // What a watch sends next, when `sent` (-1: nothing) was its last status.
  WatchStream::Item NextOf(const std::string& service, int* sent);
  void WakeAll();

  const std::vector<std::string> services_;
  Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_watch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::weak_ptr<WatchStream>> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
