#include "planner/service/main/planner_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc/service_names.h"
#include "common/grpc/status_conversion.h"
#include "common/grpc/targets.h"
#include "common/metrics/process_metrics.h"
#include "common/net/host_name.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/service/leadership/planner_name.h"
#include "planner/service/store/memory_event_store.h"

namespace penstock {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kCertificateTick = absl::Minutes(1);
// Between two ticks: the process did not run.
constexpr absl::Duration kStandstill = absl::Seconds(1);
constexpr std::chrono::seconds kCallGrace{1};

absl::Status StartOne(const char* flag, const ServerOptions& options, RunningServer* running) {
  absl::StatusOr<RunningServer> started = StartServer(options);
  if (!started.ok()) return AnnotateError(started.status(), flag);
  *running = *std::move(started);
  return absl::OkStatus();
}

// Of `listen`: who reaches it must be known, but on this machine.
absl::StatusOr<SecuredServer> SecureListener(const PlannerServerOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(SecuredServer secured, Secure(options.security, MayCall));
  if (secured.access != nullptr || options.allow_anyone || IsLoopback(options.listen)) return secured;
  return absl::InvalidArgumentError(absl::StrCat(
      "--listen: other machines reach '", options.listen,
      "', and whoever does could end or delete every job: name who may call (--tls-client-ca or --tokens, "
      "with "
      "--tls-cert and --tls-key; deploy/certs makes some to try), or take the risk with --allow-anyone"));
}

// Refused before its handler, where its address is not known.
AuditRecord RecordOf(const RefusedCall& call) {
  return {.time = absl::Now(),
          .method = std::string(call.method),
          .role = std::string(RoleName(call.caller.role)),
          .owner = call.caller.owner,
          .code = GrpcCodeName(call.code),
          .reason = "refused for who calls",
          .refused = true};
}

void StopOne(RunningServer* running) {
  if (running->server == nullptr) return;
  running->spare.reset();
  running->server->Shutdown(std::chrono::system_clock::now() + kCallGrace);
  running->server->Wait();
}

}  // namespace

PlannerServer::EngineOnStore::EngineOnStore(std::unique_ptr<EventStore> its_store,
                                            const EngineOptions& options, EngineDependencies dependencies)
    : store(std::move(its_store)), engine(options, (dependencies.store = store.get(), dependencies)) {}

PlannerServer::PlannerServer(const PlannerServerOptions& options, const SecuredServer& secured,
                             const BatchPlannerFactory* planners, const PlanChecker* checker)
    : options_(options),
      credentials_(secured.credentials),
      planners_(planners),
      checker_(checker),
      spans_(StartTracing(options.otlp_endpoint, "penstock-planner")),
      metrics_(&registry_),
      tracing_(spans_ == nullptr ? nullptr : std::make_unique<PlannerTracing>(spans_.get())),
      observers_(ObserversOfEngines()),
      certificates_(options.security, &registry_),
      standby_([this] { return OpenToRead(); }, &clock_, {}),
      service_(&slot_, &standby_, JobAccess(secured.access),
               AuditedCalls(options.audit.get(), JobAccess(secured.access)), ObserverOfSubmissions()),
      operations_(&slot_, AuditedCalls(options.audit.get(), JobAccess(secured.access))),
      health_({kReadyForJobs, kLeads}, [access = JobAccess(secured.access)](const auto& context) {
        return access.CallerOf(context).role != Role::kNobody;
      }) {
  metrics_.Watch(&slot_);
  AddProcessMetrics(&registry_, "penstock-planner");
  AddTracingMetrics(&registry_, spans_.get());
  TellOfRefusals(secured, [this](const RefusedCall& call) {
    metrics_.OnRefused(call);
    if (options_.audit != nullptr) options_.audit->Write(RecordOf(call));
  });
}

PlannerServer::~PlannerServer() { Stop(); }

std::vector<EngineObserver*> PlannerServer::ObserversOfEngines() {
  std::vector<EngineObserver*> observers = {&metrics_};
  if (tracing_ != nullptr) observers.push_back(tracing_.get());
  return observers;
}

SubmissionObserver PlannerServer::ObserverOfSubmissions() {
  if (tracing_ == nullptr) return nullptr;
  return [tracing = tracing_.get()](const Submission& submission) { tracing->OnSubmitted(submission); };
}

absl::StatusOr<std::unique_ptr<PlannerServer>> PlannerServer::Start(const PlannerServerOptions& options,
                                                                    const BatchPlannerFactory* planners,
                                                                    const PlanChecker* checker,
                                                                    std::unique_ptr<EventStore> store) {
  PENSTOCK_ASSIGN_OR_RETURN(const SecuredServer secured, SecureListener(options));
  std::unique_ptr<PlannerServer> server(new PlannerServer(options, secured, planners, checker));
  if (store == nullptr) store = std::make_unique<MemoryEventStore>();
  PENSTOCK_RETURN_IF_ERROR(server->LeadOn(std::move(store), /*term=*/1));
  PENSTOCK_RETURN_IF_ERROR(server->Listen());
  return server;
}

absl::StatusOr<std::unique_ptr<PlannerServer>> PlannerServer::Start(const PlannerServerOptions& options,
                                                                    const BatchPlannerFactory* planners,
                                                                    const PlanChecker* checker,
                                                                    SharedStore store) {
  PENSTOCK_ASSIGN_OR_RETURN(const SecuredServer secured, SecureListener(options));
  std::unique_ptr<PlannerServer> server(new PlannerServer(options, secured, planners, checker));
  server->shared_ = std::move(store);
  server->Stand(absl::UnavailableError("this planner starts as a standby; try again"));
  PENSTOCK_RETURN_IF_ERROR(server->Listen());
  const std::string name = options.advertise.empty()
                               ? DefaultPlannerName(options.listen, server->ports_.planner, HostName())
                               : options.advertise;
  Candidate* const candidate = server.get();
  server->leadership_ =
      std::make_unique<Leadership>(LeadershipOptions{.name = name, .time_to_live = options.lease_time},
                                   server->shared_.open_lease, candidate);
  server->leadership_->Start();
  return server;
}

absl::Status PlannerServer::Listen() {
  const ServerOptions served = {.listen = options_.listen,
                                .services = {&service_, &operations_, &health_},
                                .reflection = options_.reflection,
                                .credentials = credentials_,
                                .observer = [this](const EndedCall& call) { metrics_.OnCall(call); }};
  PENSTOCK_RETURN_IF_ERROR(StartOne("--listen", served, &server_));
  ports_.planner = server_.port;
  if (!options_.health_listen.empty()) {
    PENSTOCK_RETURN_IF_ERROR(StartOne(
        "--health-listen", {.listen = options_.health_listen, .services = {&health_}}, &health_server_));
    ports_.health = health_server_.port;
  }
  if (!options_.metrics_listen.empty()) {
    auto started = MetricsServer::Start(options_.metrics_listen, &registry_);
    if (!started.ok()) return AnnotateError(started.status(), "--metrics-listen");
    metrics_server_ = *std::move(started);
    ports_.metrics = metrics_server_->port();
  }
  if (!options_.page.listen.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(page_server_, ServePage(options_.page, &slot_));
    ports_.page = page_server_->port();
  }
  ticker_ = std::make_unique<Ticker>("job-ticker", kTick, [this] { Tick(); });
  if (options_.resident_bytes != nullptr) memory_watch_.Start([this] { return WatchMemory(); });
  certificates_.Look(absl::Now());
  certificate_ticker_ =
      std::make_unique<Ticker>("certificates", kCertificateTick, [this] { certificates_.Look(absl::Now()); });
  health_.SetServing("", true);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<EventStore>> PlannerServer::OpenToRead() const {
  if (shared_.open_to_read == nullptr) return absl::UnavailableError("it is not shared");
  return shared_.open_to_read();
}

PlannerServer::EngineOnStorePtr PlannerServer::MakeEngine(std::unique_ptr<EventStore> store) {
  return std::make_shared<EngineOnStore>(
      std::move(store), options_.engine,
      EngineDependencies{.planners = planners_,
                         .checker = checker_,
                         .clock = &clock_,
                         .observer = &observers_,
                         .resident_bytes = options_.resident_bytes,
                         .planning_begins = [this] { memory_watch_.Wake(); }});
}

absl::Status PlannerServer::LeadOn(std::unique_ptr<EventStore> store, Term term) {
  EngineOnStorePtr led = MakeEngine(std::move(store));
  {
    MutexLock lock(&mutex_);
    if (abandoned_ >= term) return absl::CancelledError("the lease was lost before the store was loaded");
    loading_ = led->store.get();
  }
  const absl::Status recovered = led->engine.Recover();
  {
    MutexLock lock(&mutex_);
    loading_ = nullptr;
    PENSTOCK_RETURN_IF_ERROR(recovered);
    // Before the first call is answered.
    metrics_.OnLeaderChange(true);
    slot_.Lead(EnginePtr(led, &led->engine));
    serving_.swap(led);
    // Goes on with the what-ifs that it has.
    if (led != nullptr) retired_.push_back(std::move(led));
  }
  standby_.Forget();
  TellHealth();
  // Jobs are being prepared since before the watch could see them.
  memory_watch_.Wake();
  return absl::OkStatus();
}

void PlannerServer::Follow(const absl::Status& why) { slot_.Explain(why); }

absl::Status PlannerServer::Lead(Term term) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<EventStore> store, shared_.open(term));
  return LeadOn(std::move(store), term);
}

void PlannerServer::LeadUntil(SteadyTime end) { slot_.LeadUntil(end); }

void PlannerServer::Abandon(Term term) {
  MutexLock lock(&mutex_);
  abandoned_ = std::max(abandoned_, term);
  if (loading_ != nullptr) loading_->Stop();
}

void PlannerServer::Stand(const absl::Status& why) {
  EngineOnStorePtr standby = MakeEngine(std::make_unique<MemoryEventStore>());
  MutexLock lock(&mutex_);
  slot_.Follow(EnginePtr(standby, &standby->engine), why);
  serving_.swap(standby);
  if (standby != nullptr) retired_.push_back(std::move(standby));
}

void PlannerServer::StepDown(const absl::Status& why) {
  EngineOnStorePtr led;
  {
    MutexLock lock(&mutex_);
    led = serving_;
  }
  if (!why.ok()) {
    Stand(absl::UnavailableError(absl::StrCat("this planner does not lead any more: ", why.message())));
    TellHealth();
  }
  led->engine.Shutdown(why.ok() ? options_.drain : absl::ZeroDuration());
  led->store->Stop();
  metrics_.OnLeaderChange(false);
}

void PlannerServer::TellHealth() {
  MutexLock lock(&health_mutex_);
  if (stopping_) return;
  const absl::StatusOr<EnginePtr> engine = slot_.ForJobs();
  const bool ready = engine.ok() && (*engine)->StoreHealth().ok();
  if (engine.ok() != leads_) health_.SetServing(kLeads, leads_ = engine.ok());
  if (ready != ready_) health_.SetServing(kReadyForJobs, ready_ = ready);
}

void PlannerServer::SweepRetired() {
  std::vector<EngineOnStorePtr> unused;
  {
    MutexLock lock(&mutex_);
    for (EngineOnStorePtr& engine : retired_) {
      // Nobody can take it from the slot any more, so this stays so.
      if (engine.use_count() == 1) unused.push_back(std::move(engine));
    }
    std::erase(retired_, nullptr);
  }
  for (const EngineOnStorePtr& engine : unused) engine->engine.Shutdown(absl::ZeroDuration());
}

absl::Duration PlannerServer::SinceLastTick() {
  const absl::Time now = clock_.Now();
  return now - std::exchange(last_tick_, now);
}

void PlannerServer::Tick() {
  std::vector<EngineOnStorePtr> engines;
  {
    MutexLock lock(&mutex_);
    engines = retired_;
  }
  // What-ifs that take too long.
  for (const EngineOnStorePtr& engine : engines) engine->engine.Tick();
  engines.clear();
  SweepRetired();
  // One whose lease is over decides nothing more: workers may have been heard by another.
  const absl::StatusOr<EnginePtr> engine = slot_.ForWhatIfs();
  const absl::Duration gap = SinceLastTick();
  if (engine.ok() && !slot_.expired()) {
    if (gap > kStandstill) (*engine)->ExcuseSilence(gap);
    (*engine)->Tick();
  }
  if (leadership_ != nullptr && engine.ok() && (*engine)->IsFenced()) {
    leadership_->Lose(absl::AbortedError("another planner writes the store"));
  }
  TellHealth();
}

bool PlannerServer::WatchMemory() {
  std::vector<EngineOnStorePtr> engines;
  {
    MutexLock lock(&mutex_);
    engines = retired_;
    if (serving_ != nullptr) engines.push_back(serving_);
  }
  bool plans = false;
  for (const EngineOnStorePtr& engine : engines) plans = engine->engine.WatchMemory() || plans;
  return plans;
}

void PlannerServer::Stop() {
  ticker_.reset();
  memory_watch_.Stop();
  certificate_ticker_.reset();
  {
    MutexLock lock(&health_mutex_);
    stopping_ = true;
  }
  health_.StopServing();
  if (leadership_ != nullptr) leadership_->Stop();
  std::vector<EngineOnStorePtr> engines;
  {
    MutexLock lock(&mutex_);
    engines = retired_;
    if (serving_ != nullptr) engines.push_back(serving_);
  }
  for (const EngineOnStorePtr& engine : engines) engine->engine.Shutdown(options_.drain);
  health_.Shutdown();
  // Calls that wait for it are answered.
  standby_.Stop();
  StopOne(&server_);
  StopOne(&health_server_);
  metrics_server_.reset();
  page_server_.reset();
  if (spans_ != nullptr) spans_->Stop(kLastSpans);
}

}  // namespace penstock
