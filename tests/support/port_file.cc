#include "tests/support/port_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(2);

}  // namespace

absl::StatusOr<ServedPorts> AwaitPorts(ChildProcess& planner, const std::string& path,
                                       absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  while (!std::filesystem::exists(path)) {
    if (planner.WaitFor(kTick).has_value()) return absl::FailedPreconditionError("the planner has ended");
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the planner does not serve after ", absl::FormatDuration(patience)));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto ports = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!ports.is_object() || !ports.contains("planner_port")) {
    return absl::DataLossError(absl::StrCat("'", path, "' names no planner_port"));
  }
  return ServedPorts{.planner = ports.value("planner_port", 0),
                     .metrics = ports.value("metrics_port", 0),
                     .health = ports.value("health_port", 0),
                     .page = ports.value("page_port", 0)};
}

}  // namespace penstock
