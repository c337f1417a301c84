#include "planner/cli/up/run_workers.h"

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/grpc/security/client_flags.h"
#include "planner/cli/up/job_setup.h"
#include "planner/cli/up/machine.h"

namespace penstock::cli {
namespace {

// For workers to find each other: of simulated ones, of which those that share a core take longer, and of
// those on GPUs.
constexpr absl::Duration kConnectTimeout = absl::Seconds(10);
constexpr absl::Duration kGpuStart = absl::Seconds(60);
// Epochs in a row that may fail while others are started again: more than there are restarts, because ranks
// may disagree on where to begin.
constexpr uint32_t kSpareRejoins = 10;

std::string AsAbsolutePath(const std::string& path) { return std::filesystem::absolute(path).string(); }

ClientSecurity WithAbsolutePaths(ClientSecurity security) {
  for (std::string* path : {&security.authority, &security.certificate, &security.key, &security.token})
    if (!path->empty()) *path = AsAbsolutePath(*path);
  return security;
}

std::string ConnectTimeout(absl::Duration time) {
  return absl::StrCat("--connect-timeout=", absl::ToInt64Seconds(time));
}

void AddSimulation(const UpOptions& options, std::vector<std::string>* arguments) {
  for (std::string& argument : SimulationArguments(options.simulation))
    arguments->push_back(std::move(argument));
  arguments->emplace_back("--device=simulated");
  arguments->push_back(ConnectTimeout(kConnectTimeout + Crowding(options)));
}

void AddTraining(const UpOptions& options, std::vector<std::string>* arguments) {
  if (!options.mix.empty())
    arguments->push_back(absl::StrCat("--mix=", ToText(WithAbsolutePaths(options.mix))));
  if (ValidatesOnRanks(options))
    arguments->push_back(absl::StrCat("--validation=", ToText(WithAbsolutePaths(options.validation))));
  arguments->push_back(absl::StrCat("--cut=", CutName(options.limits.cut)));
  if (IsOnGpus(options)) arguments->push_back(ConnectTimeout(kConnectTimeout + GpuStart(options)));
}

// What they run on, what they write, and how often they join a new epoch.
std::vector<std::string> WorkerArguments(const UpOptions& options) {
  const uint32_t rejoins = IsSupervised(options) ? options.max_restarts + kSpareRejoins : 0;
  std::vector<std::string> arguments = AsFlags(WithAbsolutePaths(options.planner.security));
  arguments.push_back(absl::StrCat("--max-rejoins=", rejoins));
  arguments.push_back(absl::StrCat("--planner-timeout=", options.planner_timeout_s));
  if (!options.init_from.empty()) arguments.push_back(absl::StrCat("--init-from=", options.init_from));
  if (!options.base.empty()) arguments.push_back(absl::StrCat("--base=", options.base));
  arguments.push_back(absl::StrCat("--stop-seconds=", options.stop_seconds));
  if (!options.otlp_endpoint.empty())
    arguments.push_back(absl::StrCat("--otlp-endpoint=", options.otlp_endpoint));
  if (!WritesCheckpoints(options)) arguments.emplace_back("--no-checkpoints");
  arguments.push_back(absl::StrCat("--checkpoint-failures=", options.checkpoint_failures));
  arguments.push_back(absl::StrCat("--keep-checkpoints=", options.kept_checkpoints));
  if (options.no_rescue) arguments.emplace_back("--no-rescue");
  for (std::string& argument : ClockErrorArguments(options.clock_errors))
    arguments.push_back(std::move(argument));
  IsSimulated(options) ? AddSimulation(options, &arguments) : AddTraining(options, &arguments);
  return arguments;
}

}  // namespace

LocalWorkerOptions WorkersOf(const RunSetup& setup, const std::string& planner) {
  const UpOptions& options = setup.options;
  const bool reads_data = !IsSimulated(options) && !options.dataset.empty();
  return {.planner_address = planner,
          .job_id = setup.job.job_id(),
          .workers = WorkerCount(options),
          .threads = ThreadsOfEachWorker(options),
          .dataset = reads_data ? AsAbsolutePath(options.dataset) : "",
          .checkpoint_dir = AsAbsolutePath(setup.folder.checkpoints),
          .resume = options.resume,
          .metrics_listen = options.worker_metrics_listen,
          .arguments = WorkerArguments(options),
          .gpus = options.gpus,
          .hosts = options.hosts,
          .ssh = absl::StrSplit(options.ssh, ' ', absl::SkipEmpty())};
}

bool IsSupervised(const UpOptions& options) { return options.max_restarts > 0; }

absl::Duration GpuStart(const UpOptions& options) {
  return IsOnGpus(options) ? kGpuStart : absl::ZeroDuration();
}

}  // namespace penstock::cli
