// grpc.health.v1 with a Watch that ends at shutdown (gRPC's own holds Server::Shutdown for its whole
// deadline).
//
//   HealthService health({"penstock.v1.PlannerService"});
//   health.SetServing("", true);                            // lives
//   health.SetServing("penstock.v1.PlannerService", true);  // ready
//   ...
//   health.StopServing();       // probes and load balancers see NOT_SERVING
//   health.Shutdown();          // ends open watches with UNAVAILABLE; then stop the server
#pragma once

#include <cstdint>
#include <functional>
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
  // Watches of callers whom nobody knows that are open at a time: a stranger must not fill the memory.
  static constexpr int kMostWatchesOfStrangers = 256;
  // Whether it is known who calls; called by any thread.
  using IsKnown = std::function<bool(const grpc::CallbackServerContext& context)>;

  // The names that it answers for, beside "" (the whole server). All are at first NOT_SERVING. `is_known` may
  // be empty: nobody is a stranger.
  explicit HealthService(const std::vector<std::string>& services, IsKnown is_known = nullptr);

  // `service`: one of the names.
  void SetServing(const std::string& service, bool serving);
  // None is.
  void StopServing();
  // Idempotent. Later watches end at once.
  void Shutdown();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context, const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  using WatchStream = PullStream<grpc::health::v1::HealthCheckResponse>;

  grpc::health::v1::HealthCheckResponse::ServingStatus StatusOf(const std::string& service);
  // What a watch sends next, when `sent` (-1: nothing) was its last status.
  WatchStream::Item NextOf(const std::string& service, int* sent);
  void WakeAll();
  // Null: there are too many.
  std::shared_ptr<WatchStream> AddWatch(bool of_stranger, uint64_t* id);
  void RemoveWatch(bool of_stranger, uint64_t id);

  const IsKnown is_known_;
  Mutex mutex_;
  // By name.
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_watch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::weak_ptr<WatchStream>> watches_ ABSL_GUARDED_BY(mutex_);
  int watches_of_strangers_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace penstock
