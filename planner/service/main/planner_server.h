// The whole planner in one object: engine, gRPC, health, metrics. The composition root of penstock-planner,
// and what integration tests start in their own process.
//
//   CorePlannerFactory planners;
//   CorePlanChecker checker;
//   PENSTOCK_ASSIGN_OR_RETURN(auto server, PlannerServer::Start({}, &planners, &checker));
//   ... server->ports().planner ...
//   server->Stop();
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/grpc/health_service.h"
#include "common/grpc/server.h"
#include "common/metrics/metrics.h"
#include "planner/service/engine/engine.h"
#include "planner/service/main/planner_metrics.h"
#include "planner/service/main/ticker.h"
#include "planner/service/rpc/planner_rpc_service.h"
#include "planner/service/store/event_store.h"

namespace penstock {

struct PlannerServerOptions {
  // "host:port"; port 0 picks a free one.
  std::string listen = "127.0.0.1:0";
  // HTTP for Prometheus; empty: none.
  std::string metrics_listen = {};
  // A second gRPC server with the health service alone, for probes; empty: none.
  std::string health_listen = {};
  bool reflection = false;
  EngineOptions engine = {};
  // How long Stop() goes on planning what was accepted.
  absl::Duration drain = absl::Seconds(2);
};

// 0: not served.
struct BoundPorts {
  int planner = 0;
  int metrics = 0;
  int health = 0;
};

class PlannerServer {
 public:
  // Takes up the jobs of the store (null: an empty one in memory), and serves when it returns. `planners` and
  // `checker` must outlive the server.
  // Possible errors: INVALID_ARGUMENT (an address cannot be bound; names the flag), those of
  // PlannerEngine::Recover.
  static absl::StatusOr<std::unique_ptr<PlannerServer>> Start(const PlannerServerOptions& options,
                                                              const BatchPlannerFactory* planners,
                                                              const PlanChecker* checker,
                                                              std::unique_ptr<EventStore> store = nullptr);
  // Stops.
  ~PlannerServer();

  const BoundPorts& ports() const { return ports_; }
  const MetricsRegistry& metrics() const { return registry_; }

  // Readiness off; streams end with UNAVAILABLE; what waits is planned for at most `drain`, the rest
  // cancelled; open calls are cut off after a second. Idempotent.
  void Stop();

 private:
  PlannerServer(const PlannerServerOptions& options, const BatchPlannerFactory* planners,
                const PlanChecker* checker, std::unique_ptr<EventStore> store);
  // Ready while jobs can be written.
  void Tick();
  absl::Status Listen();

  const PlannerServerOptions options_;
  MetricsRegistry registry_;
  PlannerMetrics metrics_;
  MachineClock clock_;
  const std::unique_ptr<EventStore> store_;
  PlannerEngine engine_;
  PlannerRpcService service_;
  HealthService health_;
  // What the health service says; the ticker's.
  bool ready_ = true;
  RunningServer server_;
  RunningServer health_server_;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::unique_ptr<Ticker> ticker_;
  BoundPorts ports_;
};

}  // namespace penstock
