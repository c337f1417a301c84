// penstock-planner: serves plans until SIGTERM or SIGINT, then ends in good order with status 0.
#include <signal.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/grpc/library_log.h"
#include "common/logging/logging.h"
#include "common/parallel/task_pool.h"
#include "common/process/background_thread.h"
#include "common/process/freed_memory.h"
#include "common/process/open_files.h"
#include "common/process/sanitized.h"
#include "common/process/stop_signals.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/sync/thread_name.h"
#include "common/sync/ticker.h"
#include "planner/core/cost/profile_reader.h"
#include "planner/service/audit/audit_log.h"
#include "planner/service/main/core_backend.h"
#include "planner/service/main/flags.h"
#include "planner/service/main/planner_server.h"
#include "planner/service/store/open/open_event_store.h"

namespace penstock {
namespace {

// Strangers who try to connect must not leave a planner that is larger for good.
constexpr absl::Duration kGiveMemoryBackEvery = absl::Seconds(10);

void BecomePlanningHelper() {
  NameThisThread("planning-helper");
  BecomeBackgroundThread();
}

int WaitForStopSignal() {
  const sigset_t signals = StopSignals();
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) {
  }
  return signal;
}

// Of a standby's reads: who asks waits for no longer.
constexpr absl::Duration kReadTimeout = absl::Seconds(2);

// {"planner_port": 41234, "metrics_port": 41235}: those that are served.
std::string PortsAsJson(const BoundPorts& ports) {
  nlohmann::ordered_json json;
  json["planner_port"] = ports.planner;
  if (ports.metrics != 0) json["metrics_port"] = ports.metrics;
  if (ports.health != 0) json["health_port"] = ports.health;
  if (ports.page != 0) json["page_port"] = ports.page;
  return json.dump() + "\n";
}

SharedStore SharedStoreOf(const PlannerFlags& flags) {
  const absl::Duration time = flags.server.lease_time;
  return {.open_lease = [url = flags.store,
                         time] { return OpenLease(url, {.time_to_live = time, .call_timeout = time / 2}); },
          .open = [url = flags.store](Term term) { return OpenEventStore(url, {.term = term}); },
          .open_to_read =
              [url = flags.store] {
                return OpenEventStore(url, {.call_timeout = kReadTimeout, .load_timeout = kReadTimeout});
              }};
}

absl::StatusOr<std::unique_ptr<PlannerServer>> StartPlanner(const PlannerFlags& flags,
                                                            const BatchPlannerFactory* planners,
                                                            const PlanChecker* checker) {
  if (IsSharedStore(flags.store)) {
    return PlannerServer::Start(flags.server, planners, checker, SharedStoreOf(flags));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<EventStore> store, OpenEventStore(flags.store, {}));
  return PlannerServer::Start(flags.server, planners, checker, std::move(store));
}

// Possible errors: INVALID_ARGUMENT, naming the flag.
absl::StatusOr<std::optional<v1::ProfileFile>> CostsOfDevices(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok())
    return absl::InvalidArgumentError(absl::StrCat("--simulated-profile: ", text.status().message()));
  absl::StatusOr<v1::ProfileFile> file = core::ParseProfile(*text);
  if (!file.ok()) return AnnotateError(file.status(), absl::StrCat("--simulated-profile ", path));
  return *std::move(file);
}

// Memory that is free but still the process' does not count: it is given back first.
PlannerFlags WithWatch(PlannerFlags flags) {
  // What a sanitizer keeps of memory that was given back is not the planner's.
  if (kSanitized) return flags;
  flags.server.resident_bytes = [limit = flags.server.engine.process_memory_bytes] {
    const size_t resident = ResidentBytes();
    if (resident <= limit) return resident;
    GiveAllFreedMemoryBack();
    return ResidentBytes();
  };
  return flags;
}

absl::Status Serve(const PlannerFlags& flags) {
  BlockStopSignals();
  TaskPool threads(flags.server.engine.planning_threads, BecomePlanningHelper);
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<v1::ProfileFile> devices, CostsOfDevices(flags.simulated_profile));
  const CorePlannerFactory planners(threads.AsFunction(), std::move(devices));
  const CorePlanChecker checker;
  PlannerFlags all = WithWatch(flags);
  if (!flags.audit_log.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(all.server.audit, AuditLog::Open(flags.audit_log));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const auto server, StartPlanner(all, &planners, &checker));
  const BoundPorts& ports = server->ports();
  LogInfo("planner serves", {{"planner_port", ports.planner},
                             {"metrics_port", ports.metrics},
                             {"health_port", ports.health},
                             {"page_port", ports.page},
                             {"planning_threads", flags.server.engine.planning_threads},
                             {"store", StoreName(flags.store)}});
  if (!flags.port_file.empty()) {
    PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(flags.port_file, PortsAsJson(ports)));
  }
  FreedMemory freed;
  const Ticker giving_back("freed-memory", kGiveMemoryBackEvery, [&freed] { freed.GiveBack(); });
  LogInfo("planner stops", {{"signal", WaitForStopSignal()}});
  server->Stop();
  LogInfo("planner stopped");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const ParsedFlags parsed = ParseFlags(argc, argv);
  if (parsed.exit_status.has_value()) return *parsed.exit_status;
  ConfigureLogging(parsed.flags.log_level, parsed.flags.log_format);
  AllowManyOpenFiles();
  LogWhatGrpcSays();
  const absl::Status status = Serve(parsed.flags);
  if (status.ok()) return 0;
  LogError("planner failed", {{"reason", status.ToString()}});
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
