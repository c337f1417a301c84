// The whole planner in one object: engine, gRPC, health, metrics. The composition root of penstock-planner,
// and what integration tests start in their own process.
//
//   CorePlannerFactory planners;
//   CorePlanChecker checker;
//   PENSTOCK_ASSIGN_OR_RETURN(auto server, PlannerServer::Start({}, &planners, &checker));
//   ... server->ports().planner ...
//   server->Stop();
//
// A planner alone on its store leads from start to end. One that shares its store leads while it holds the
// lease, on an engine that it makes anew each time, and is a standby otherwise: it answers PlanBatch, on an
// engine without jobs, GetJob and ListJobs from the store, and every other method with UNAVAILABLE and the
// leader's name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/grpc/health_service.h"
#include "common/grpc/security/server_security.h"
#include "common/grpc/server.h"
#include "common/metrics/metrics.h"
#include "common/sync/ticker.h"
#include "common/tracing/tracing.h"
#include "planner/service/audit/audit_log.h"
#include "planner/service/engine/engine.h"
#include "planner/service/engine/observers.h"
#include "planner/service/leadership/leadership.h"
#include "planner/service/main/certificate_watch.h"
#include "planner/service/main/memory_watch.h"
#include "planner/service/main/planner_metrics.h"
#include "planner/service/main/planner_tracing.h"
#include "planner/service/page/page.h"
#include "planner/service/rpc/engine_slot.h"
#include "planner/service/rpc/planner_operations_service.h"
#include "planner/service/rpc/planner_rpc_service.h"
#include "planner/service/standby/standby_reader.h"
#include "planner/service/store/event_store.h"

namespace penstock {

struct PlannerServerOptions {
  // "host:port"; port 0 picks a free one.
  std::string listen = "127.0.0.1:0";
  // HTTP for Prometheus; empty: none.
  std::string metrics_listen = {};
  // "host:port" of a collector of OpenTelemetry that takes spans; empty: none are made.
  std::string otlp_endpoint = {};
  // A page for browsers that shows jobs; an empty address: none.
  PageOptions page = {};
  // A second gRPC server with the health service alone, for probes; empty: none.
  std::string health_listen = {};
  bool reflection = false;
  // Of `listen`.
  ServerSecurity security = {};
  // Serves other machines although it does not know who calls.
  bool allow_anyone = false;
  EngineOptions engine = {};
  // Null: none is written.
  std::shared_ptr<AuditLog> audit = nullptr;
  // Resident memory of the process, for EngineOptions.process_memory_bytes; null: nobody watches it.
  std::function<size_t()> resident_bytes = nullptr;
  // How long Stop() goes on planning what was accepted.
  absl::Duration drain = absl::Seconds(2);
  // Where clients reach this planner, HOST:PORT: its name in the lease. Empty: see DefaultPlannerName.
  std::string advertise = {};
  // With which the lease of a shared store is opened.
  absl::Duration lease_time = absl::Seconds(6);
};

// A store of which one planner at a time is the writer.
struct SharedStore {
  // Called again while it fails.
  Leadership::OpenLease open_lease;
  std::function<absl::StatusOr<std::unique_ptr<EventStore>>(Term)> open;
  // The same for a standby, which only reads, with short deadlines; null: a standby tells nothing of jobs.
  StandbyReader::Open open_to_read = nullptr;
};

// 0: not served.
struct BoundPorts {
  int planner = 0;
  int metrics = 0;
  int health = 0;
  int page = 0;
};

class PlannerServer : private Candidate {
 public:
  // Takes up the jobs of the store (null: an empty one in memory), and serves when it returns. `planners` and
  // `checker` must outlive the server.
  // Possible errors: INVALID_ARGUMENT (nobody should listen on an address), those of ListenError, of Secure
  // (all name the flag) and of PlannerEngine::Recover.
  static absl::StatusOr<std::unique_ptr<PlannerServer>> Start(const PlannerServerOptions& options,
                                                              const BatchPlannerFactory* planners,
                                                              const PlanChecker* checker,
                                                              std::unique_ptr<EventStore> store = nullptr);
  // Serves when it returns, as a standby at first. `planners` and `checker` must outlive the server.
  // Possible errors: INVALID_ARGUMENT (nobody should listen on an address), those of ListenError and of
  // Secure; all name the flag.
  static absl::StatusOr<std::unique_ptr<PlannerServer>> Start(const PlannerServerOptions& options,
                                                              const BatchPlannerFactory* planners,
                                                              const PlanChecker* checker, SharedStore store);
  // Stops.
  ~PlannerServer() override;

  const BoundPorts& ports() const { return ports_; }
  const MetricsRegistry& metrics() const { return registry_; }

  // Readiness off; streams end with UNAVAILABLE; what waits is planned for at most `drain`, the rest
  // cancelled; a lease is given up; open calls are cut off after a second; spans are sent for two.
  // Idempotent.
  void Stop();

 private:
  // The store must outlive the engine that writes it.
  struct EngineOnStore {
    EngineOnStore(std::unique_ptr<EventStore> its_store, const EngineOptions& options,
                  EngineDependencies dependencies);
    const std::unique_ptr<EventStore> store;
    PlannerEngine engine;
  };
  using EngineOnStorePtr = std::shared_ptr<EngineOnStore>;

  PlannerServer(const PlannerServerOptions& options, const SecuredServer& secured,
                const BatchPlannerFactory* planners, const PlanChecker* checker);
  std::vector<EngineObserver*> ObserversOfEngines();
  // Empty where spans are not wanted.
  SubmissionObserver ObserverOfSubmissions();
  absl::Status Listen();
  absl::StatusOr<std::unique_ptr<EventStore>> OpenToRead() const;
  EngineOnStorePtr MakeEngine(std::unique_ptr<EventStore> store);
  // Takes up the jobs of the store and serves.
  absl::Status LeadOn(std::unique_ptr<EventStore> store, Term term);

  // Candidate, for a shared store.
  void Follow(const absl::Status& why) override;
  absl::Status Lead(Term term) override;
  void LeadUntil(SteadyTime end) override;
  void Abandon(Term term) override;
  void StepDown(const absl::Status& why) override;

  // Serves what-ifs from now on, and nothing else.
  void Stand(const absl::Status& why);
  void Tick();
  // Whether it is to be called again soon.
  bool WatchMemory();
  // The ticker's thread alone.
  absl::Duration SinceLastTick();
  void TellHealth();
  // Destroys engines that no call uses any more.
  void SweepRetired();

  const PlannerServerOptions options_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;
  const BatchPlannerFactory* const planners_;
  const PlanChecker* const checker_;
  // Null: spans are not wanted. Before the metrics, which read it.
  const std::unique_ptr<SpanExporter> spans_;
  MetricsRegistry registry_;
  PlannerMetrics metrics_;
  const std::unique_ptr<PlannerTracing> tracing_;
  Observers observers_;
  CertificateWatch certificates_;
  MachineClock clock_;
  absl::Time last_tick_ = clock_.Now();
  // Null functions: alone on its store.
  SharedStore shared_;
  EngineSlot slot_;
  StandbyReader standby_;

  // Is told by engines what they begin, so it outlives them.
  MemoryWatch memory_watch_;
  Mutex mutex_;
  // The one in the slot, and those that were there before and may still be used by a call.
  EngineOnStorePtr serving_ ABSL_GUARDED_BY(mutex_);
  std::vector<EngineOnStorePtr> retired_ ABSL_GUARDED_BY(mutex_);
  // The store from which a Lead that runs is loading.
  EventStore* loading_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Term abandoned_ ABSL_GUARDED_BY(mutex_) = 0;

  PlannerRpcService service_;
  PlannerOperationsService operations_;
  HealthService health_;
  Mutex health_mutex_;
  // What the health service says, and whether it may be told something else.
  bool leads_ ABSL_GUARDED_BY(health_mutex_) = false;
  bool ready_ ABSL_GUARDED_BY(health_mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(health_mutex_) = false;
  RunningServer server_;
  RunningServer health_server_;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::unique_ptr<HttpServer> page_server_;
  std::unique_ptr<Leadership> leadership_;
  std::unique_ptr<Ticker> ticker_;
  std::unique_ptr<Ticker> certificate_ticker_;
  BoundPorts ports_;
};

}  // namespace penstock
