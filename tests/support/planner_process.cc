#include "tests/support/planner_process.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr absl::Duration kStart = absl::Seconds(30);
constexpr absl::Duration kTick = absl::Milliseconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<PlannerProcess>> PlannerProcess::Start(const std::string& binary,
                                                                      const std::vector<std::string>& flags) {
  std::unique_ptr<PlannerProcess> planner(new PlannerProcess());
  std::vector<std::string> arguments = {
      binary,    "--listen", "127.0.0.1:0", "--port-file", planner->folder_.Path("ports.json"),
      "--store", "memory"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  PENSTOCK_ASSIGN_OR_RETURN(
      planner->process_,
      ChildProcess::Start({.arguments = arguments, .log_path = planner->folder_.Path("planner.log")}));
  PENSTOCK_RETURN_IF_ERROR(planner->WaitForPort());
  return planner;
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
