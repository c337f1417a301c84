#include "planner/cli/up/local_cluster.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/net/listening.h"
#include "common/process/log_tail.h"
#include "common/secret/incarnation.h"
#include "common/secret/random_secret.h"
#include "common/status/status_macros.h"
#include "planner/cli/up/remote_command.h"

namespace penstock::cli {
namespace {

constexpr absl::Duration kStartPollInterval = absl::Milliseconds(20);
constexpr size_t kShownProcessLogLines = 8;
// Epochs that a worker is believed to have joined at most.
constexpr uint64_t kMostJoins = 1024;
// Of penstock-worker, when another start would end the same; and of any command whose flags are wrong.
constexpr int kNotWorthRestarting = 2;

absl::Status EndedError(const std::string& name, const std::string& log, const std::string& how) {
  return absl::UnavailableError(
      absl::StrCat(name, " ", how, "; the end of ", log, ":\n", LogTail(log, kShownProcessLogLines)));
}

// "host:port" as that of rank 0, where 0 is any free port.
std::string AddressOfRank(const std::string& address, uint32_t rank) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port == 0)
    return address;
  return absl::StrCat(address.substr(0, colon + 1), port + rank);
}

}  // namespace

absl::Status LocalCluster::Start(Member& member) {
  if (member.log.empty()) member.log = absl::StrCat(options_.log_dir, "/", member.name, ".log");
  ChildOptions child = {
      .arguments = member.arguments, .log_path = member.log, .signals_on_stdin = member.remote};
  if (member.is_worker) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string secret, RandomSecret());
    member.incarnation_key = absl::BytesToHexString(secret);
    child.environment = {{kIncarnationKeyVariable, member.incarnation_key}};
    if (member.remote) child.first_line = member.incarnation_key;
  }
  PENSTOCK_ASSIGN_OR_RETURN(member.process, ChildProcess::Start(child));
  return absl::OkStatus();
}

absl::StatusOr<std::string> LocalCluster::StartPlanner(const LocalPlannerOptions& options) {
  const std::string port_file = absl::StrCat(options_.log_dir, "/planner.ports.json");
  std::error_code ignored;
  std::filesystem::remove(port_file, ignored);
  // The same when it is started again.
  PENSTOCK_ASSIGN_OR_RETURN(const std::string address, WithUnusedPort("127.0.0.1:0"));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string page, WithUnusedPort(options.page_listen));
  std::vector<std::string> arguments = {
      absl::StrCat(options_.bin_dir, "/penstock-planner"), absl::StrCat("--listen=", address),
      absl::StrCat("--port-file=", port_file), absl::StrCat("--store=", options.store)};
  // A flag with an empty value would take the next one for its value.
  if (!page.empty()) arguments.push_back(absl::StrCat("--page-listen=", page));
  if (!options.metrics_listen.empty()) {
    arguments.push_back(absl::StrCat("--metrics-listen=", options.metrics_listen));
  }
  if (!options.otlp_endpoint.empty())
    arguments.push_back(absl::StrCat("--otlp-endpoint=", options.otlp_endpoint));
  if (!options.simulated_profile.empty())
    arguments.push_back(absl::StrCat("--simulated-profile=", options.simulated_profile));
  Member planner{.name = "planner", .log = "", .arguments = std::move(arguments), .process = nullptr};
  PENSTOCK_RETURN_IF_ERROR(Start(planner));
  planner_ = std::move(planner);

  for (absl::Duration waited; waited < options.deadline; waited += kStartPollInterval) {
    if (const std::optional<ExitStatus> ended = planner_->process->WaitFor(kStartPollInterval);
        ended.has_value()) {
      return EndedError(planner_->name, planner_->log, ended->ToString());
    }
    if (!std::filesystem::exists(port_file)) continue;
    if (!page.empty()) page_ = absl::StrCat("http://", page, "/");
    return address;
  }
  return EndedError(planner_->name, planner_->log,
                    absl::StrCat("did not serve within ", absl::FormatDuration(options.deadline)));
}

std::vector<std::string> LocalCluster::WorkerCommand(const LocalWorkerOptions& options, uint32_t rank,
                                                     bool resume) const {
  std::vector<std::string> command = {absl::StrCat(options_.bin_dir, "/penstock-worker"),
                                      absl::StrCat("--planner=", options.planner_address),
                                      absl::StrCat("--job=", options.job_id),
                                      absl::StrCat("--rank=", rank),
                                      absl::StrCat("--threads=", options.threads),
                                      absl::StrCat("--checkpoint-dir=", options.checkpoint_dir)};
  if (!options.dataset.empty()) command.push_back(absl::StrCat("--dataset=", options.dataset));
  if (!options.metrics_listen.empty())
    command.push_back(absl::StrCat("--metrics-listen=", AddressOfRank(options.metrics_listen, rank)));
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  if (!options.gpus.empty()) command.push_back(absl::StrCat("--device=cuda:", options.gpus[rank]));
  if (resume) command.emplace_back("--resume");
  if (options.hosts.empty()) return command;
  command.push_back(absl::StrCat("--host=", options.hosts[rank]));
  return RemoteCommand(options.ssh, options.hosts[rank], command, kIncarnationKeyVariable);
}

std::string LocalCluster::DescribeWorker(const LocalWorkerOptions& options, uint32_t rank) const {
  const auto append = [](std::string* line, const std::string& word) {
    // Flags are read more easily as they are.
    const bool plain = word.find_first_of(" '\"$&;<>|") == std::string::npos;
    line->append(plain ? word : ShellWord(word));
  };
  return absl::StrCat("worker-", rank, " is started by: ",
                      absl::StrJoin(WorkerCommand(options, rank, options.resume), " ", append));
}

absl::Status LocalCluster::StartWorkers(const LocalWorkerOptions& options) {
  for (uint32_t rank = 0; rank < options.workers; ++rank) {
    Member worker{.name = absl::StrCat("worker-", rank),
                  .log = "",
                  .arguments = WorkerCommand(options, rank, options.resume),
                  .remote = !options.hosts.empty(),
                  .is_worker = true,
                  .process = nullptr};
    PENSTOCK_RETURN_IF_ERROR(Start(worker));
    worker.arguments = WorkerCommand(options, rank, /*resume=*/true);
    workers_.push_back(std::move(worker));
  }
  return absl::OkStatus();
}

std::vector<LocalCluster::Member*> LocalCluster::Members() {
  std::vector<Member*> members;
  if (planner_.has_value()) members.push_back(&*planner_);
  for (Member& worker : workers_) members.push_back(&worker);
  return members;
}

std::vector<EndedProcess> LocalCluster::Ended() {
  std::vector<EndedProcess> all;
  for (const Member* member : Members()) {
    const std::optional<ExitStatus> ended = member->process->Poll();
    if (!ended.has_value() || ended->ok()) continue;
    EndedProcess& process = all.emplace_back();
    process.name = member->name;
    if (!planner_.has_value() || member != &*planner_) {
      process.rank = static_cast<uint32_t>(std::distance<const Member*>(workers_.data(), member));
    }
    process.how = ended->ToString();
    process.worth_restarting = ended->code != kNotWorthRestarting;
  }
  return all;
}

std::vector<int> LocalCluster::EndDescriptors() {
  std::vector<int> descriptors;
  for (const Member* member : Members()) {
    if (const int descriptor = member->process->end_descriptor(); descriptor >= 0)
      descriptors.push_back(descriptor);
  }
  return descriptors;
}

absl::Status LocalCluster::Restart(const std::string& name) {
  for (Member* member : Members()) {
    if (member->name != name) continue;
    PENSTOCK_RETURN_IF_ERROR(Start(*member));
  }
  return absl::OkStatus();
}

bool LocalCluster::KillPlanner() {
  if (!planner_.has_value() || planner_->process->Poll().has_value()) return false;
  planner_->process->Signal(SIGKILL);
  return true;
}

bool LocalCluster::KillWorker(uint32_t rank) {
  if (!IsRunning(rank)) return false;
  workers_[rank].process->Signal(SIGKILL);
  return true;
}

absl::Status LocalCluster::Check() {
  // Killed by a signal comes first: the others only lost their peer.
  const Member* failed = nullptr;
  std::string how;
  const auto look = [&](const Member& member) {
    const std::optional<ExitStatus> ended = member.process->Poll();
    if (!ended.has_value() || ended->ok()) return;
    if (failed == nullptr || ended->signal != 0) {
      failed = &member;
      how = ended->ToString();
    }
  };
  for (const Member* member : Members()) look(*member);
  if (failed == nullptr) return absl::OkStatus();
  return EndedError(failed->name, failed->log, how);
}

bool LocalCluster::WorkersEnded() {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Member& worker) { return worker.process->Poll().has_value(); });
}

bool LocalCluster::IsRunning(uint32_t rank) {
  return rank < workers_.size() && !workers_[rank].process->Poll().has_value();
}

std::optional<uint64_t> LocalCluster::IncarnationOf(uint32_t rank, uint64_t digest) const {
  for (uint64_t join = 0; rank < workers_.size() && join < kMostJoins; ++join) {
    const uint64_t incarnation = penstock::IncarnationOf(workers_[rank].incarnation_key, join);
    if (IncarnationDigest(incarnation) == digest) return incarnation;
  }
  return std::nullopt;
}

std::string LocalCluster::NamesOfRunningWorkers() {
  std::vector<std::string> names;
  for (const Member& worker : workers_)
    if (!worker.process->Poll().has_value()) names.push_back(worker.name);
  return absl::StrJoin(names, ", ");
}

void LocalCluster::AskWorkersToStop() {
  for (const Member& worker : workers_) worker.process->Signal(SIGTERM);
}

void LocalCluster::Stop(absl::Duration grace) {
  // All at once: each would otherwise spend its grace waiting for a peer that is gone.
  std::vector<ChildProcess*> workers;
  workers.reserve(workers_.size());
  for (const Member& worker : workers_) workers.push_back(worker.process.get());
  StopAll(workers, grace);
  if (planner_.has_value()) planner_->process->Stop(grace);
}

}  // namespace penstock::cli
