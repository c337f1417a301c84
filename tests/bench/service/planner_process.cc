#include "tests/bench/service/planner_process.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::bench {
namespace {

constexpr absl::Duration kStart = absl::Seconds(60);
constexpr absl::Duration kTick = absl::Milliseconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<PlannerProcess>> PlannerProcess::Start(const std::string& store,
                                                                      std::vector<std::string> flags) {
  auto planner = std::unique_ptr<PlannerProcess>(new PlannerProcess(store, std::move(flags)));
  if (store == "postgres") {
    PENSTOCK_ASSIGN_OR_RETURN(planner->server_, PostgresServer::Start(/*flushes=*/true));
    planner->database_ = planner->server_->NewDatabase();
  }
  PENSTOCK_RETURN_IF_ERROR(planner->Restart());
  return planner;
}

std::string PlannerProcess::StoreUrl() const {
  if (server_ != nullptr) return server_->Url(database_);
  return store_ == "sqlite" ? absl::StrCat("sqlite:", folder_.Path("planner.db")) : store_;
}

absl::Status PlannerProcess::Restart() {
  const std::string ports = folder_.Path("ports.json");
  std::filesystem::remove(ports);
  std::vector<std::string> arguments = {PENSTOCK_PLANNER, "--listen", address_,      "--port-file", ports,
                                        "--store",        StoreUrl(), "--log-level", "warning"};
  arguments.insert(arguments.end(), flags_.begin(), flags_.end());
  PENSTOCK_ASSIGN_OR_RETURN(
      process_, ChildProcess::Start({.arguments = arguments, .log_path = folder_.Path("planner.log")}));
  const absl::Time deadline = absl::Now() + kStart;
  while (!std::filesystem::exists(ports)) {
    if (process_->WaitFor(kTick).has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the planner has ended:\n", ReadFile(folder_.Path("planner.log")).value_or("")));
    }
    if (absl::Now() > deadline) return absl::DeadlineExceededError("the planner does not serve");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(ports));
  address_ = absl::StrCat("127.0.0.1:", nlohmann::json::parse(text)["planner_port"].get<int>());
  return absl::OkStatus();
}

void PlannerProcess::Kill() {
  process_->Signal(SIGKILL);
  process_->WaitFor(absl::Seconds(10));
}

int64_t PlannerProcess::ResidentBytes() const {
  std::ifstream statm(absl::StrCat("/proc/", process_->pid(), "/statm"));
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t PlannerProcess::StoreBytes() const {
  int64_t bytes = 0;
  if (server_ != nullptr) {
    const std::string text = server_->Sql(database_, "SELECT pg_database_size(current_database())");
    return absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &bytes) ? bytes : 0;
  }
  for (const char* name : {"planner.db", "planner.db-wal"}) {
    std::error_code missing;
    const uintmax_t size = std::filesystem::file_size(folder_.Path(name), missing);
    if (!missing) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace penstock::bench
