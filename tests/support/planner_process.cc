#include "tests/support/planner_process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr absl::Duration kStart = absl::Seconds(30);
constexpr absl::Duration kTick = absl::Milliseconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<PlannerProcess>> PlannerProcess::Start(std::string binary,
                                                                      std::vector<std::string> flags) {
  std::unique_ptr<PlannerProcess> planner(new PlannerProcess(std::move(binary), std::move(flags)));
  PENSTOCK_RETURN_IF_ERROR(planner->Restart());
  return planner;
}

absl::Status PlannerProcess::Restart() {
  std::filesystem::remove(folder_.Path("ports.json"));
  std::vector<std::string> arguments = {binary_, "--listen", address_, "--port-file",
                                        folder_.Path("ports.json")};
  const auto names_store = [](const std::string& flag) { return absl::StartsWith(flag, "--store"); };
  if (std::ranges::none_of(flags_, names_store)) arguments.push_back("--store=memory");
  arguments.insert(arguments.end(), flags_.begin(), flags_.end());
  PENSTOCK_ASSIGN_OR_RETURN(
      process_, ChildProcess::Start({.arguments = arguments, .log_path = folder_.Path("planner.log")}));
  return WaitForPort();
}

void PlannerProcess::Kill() {
  process_->Signal(SIGKILL);
  process_->WaitFor(absl::Seconds(10));
}

absl::Status PlannerProcess::WaitForPort() {
  const absl::Time deadline = absl::Now() + kStart;
  while (!std::filesystem::exists(folder_.Path("ports.json"))) {
    if (process_->WaitFor(kTick).has_value())
      return absl::FailedPreconditionError(absl::StrCat("the planner has ended:\n", Log()));
    if (absl::Now() > deadline) return absl::DeadlineExceededError("the planner does not serve");
  }
  const auto ports = nlohmann::json::parse(folder_.Read("ports.json"), nullptr, /*allow_exceptions=*/false);
  address_ = absl::StrCat("127.0.0.1:", ports.value("planner_port", 0));
  return absl::OkStatus();
}

int64_t PlannerProcess::ResidentBytes() const {
  std::ifstream pages(absl::StrCat("/proc/", process_->pid(), "/statm"));
  int64_t total = 0;
  int64_t resident = 0;
  pages >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace penstock
