#include "planner/service/main/planner_server.h"

#include <chrono>
#include <utility>

#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/service/store/memory_event_store.h"

namespace penstock {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr std::chrono::seconds kCallGrace{1};

absl::Status StartOne(const char* flag, const ServerOptions& options, RunningServer* running) {
  absl::StatusOr<RunningServer> started = StartServer(options);
  if (!started.ok()) return AnnotateError(started.status(), flag);
  *running = *std::move(started);
  return absl::OkStatus();
}

void StopOne(RunningServer* running) {
  if (running->server == nullptr) return;
  running->server->Shutdown(std::chrono::system_clock::now() + kCallGrace);
  running->server->Wait();
}

}  // namespace

PlannerServer::PlannerServer(const PlannerServerOptions& options, const BatchPlannerFactory* planners,
                             const PlanChecker* checker, std::unique_ptr<EventStore> store)
    : options_(options),
      metrics_(&registry_),
      store_(store != nullptr ? std::move(store) : std::make_unique<MemoryEventStore>()),
      engine_(options.engine, {planners, checker, store_.get(), &clock_, &metrics_}),
      service_(&engine_, [this](const char* method, grpc::StatusCode code) { metrics_.OnRpc(method, code); }),
      health_({v1::PlannerService::service_full_name()}) {
  metrics_.Watch(&engine_);
}

PlannerServer::~PlannerServer() { Stop(); }

absl::StatusOr<std::unique_ptr<PlannerServer>> PlannerServer::Start(const PlannerServerOptions& options,
                                                                    const BatchPlannerFactory* planners,
                                                                    const PlanChecker* checker,
                                                                    std::unique_ptr<EventStore> store) {
  std::unique_ptr<PlannerServer> server(new PlannerServer(options, planners, checker, std::move(store)));
  PENSTOCK_RETURN_IF_ERROR(server->engine_.Recover());
  PENSTOCK_RETURN_IF_ERROR(server->Listen());
  server->ticker_ = std::make_unique<Ticker>(kTick, [self = server.get()] { self->Tick(); });
  server->health_.SetServing(true);
  return server;
}

absl::Status PlannerServer::Listen() {
  PENSTOCK_RETURN_IF_ERROR(
      StartOne("--listen", {options_.listen, {&service_, &health_}, options_.reflection}, &server_));
  ports_.planner = server_.port;
  if (!options_.health_listen.empty()) {
    PENSTOCK_RETURN_IF_ERROR(
        StartOne("--health-listen", {options_.health_listen, {&health_}, false}, &health_server_));
    ports_.health = health_server_.port;
  }
  if (!options_.metrics_listen.empty()) {
    auto started = MetricsServer::Start(options_.metrics_listen, &registry_);
    if (!started.ok()) return AnnotateError(started.status(), "--metrics-listen");
    metrics_server_ = *std::move(started);
    ports_.metrics = metrics_server_->port();
  }
  return absl::OkStatus();
}

void PlannerServer::Tick() {
  engine_.Tick();
  if (const bool ready = engine_.StoreHealth().ok(); ready != ready_) {
    ready_ = ready;
    health_.SetServing(ready);
  }
}

void PlannerServer::Stop() {
  ticker_.reset();
  health_.SetServing(false);
  engine_.Shutdown(options_.drain);
  health_.Shutdown();
  StopOne(&server_);
  StopOne(&health_server_);
  metrics_server_.reset();
}

}  // namespace penstock
