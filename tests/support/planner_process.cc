#include "tests/support/planner_process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net/listening.h"
#include "common/status/status_macros.h"
#include "tests/support/port_file.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<PlannerProcess>> PlannerProcess::Start(std::string binary,
                                                                      std::vector<std::string> flags) {
  std::unique_ptr<PlannerProcess> planner(new PlannerProcess(std::move(binary), std::move(flags)));
  PENSTOCK_ASSIGN_OR_RETURN(planner->address_, WithUnusedPort("127.0.0.1:0"));
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
  const absl::StatusOr<ServedPorts> ports = AwaitPorts(*process_, folder_.Path("ports.json"));
  if (!ports.ok())
    return absl::Status(ports.status().code(), absl::StrCat(ports.status().message(), ":\n", Log()));
  return absl::OkStatus();
}

void PlannerProcess::Kill() {
  process_->Signal(SIGKILL);
  process_->WaitFor(absl::Seconds(10));
}

int64_t PlannerProcess::ResidentBytes() const {
  std::ifstream pages(absl::StrCat("/proc/", process_->pid(), "/statm"));
  int64_t total = 0;
  int64_t resident = 0;
  pages >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace penstock
