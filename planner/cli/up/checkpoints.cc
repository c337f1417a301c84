#include "planner/cli/up/checkpoints.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace penstock::cli {

std::optional<CheckpointFolder> NewestCheckpoint(const std::string& checkpoint_dir) {
  std::optional<CheckpointFolder> newest;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    absl::string_view number = name;
    uint64_t iteration = 0;
    if (!absl::ConsumePrefix(&number, "iteration-") || !absl::SimpleAtoi(number, &iteration)) continue;
    if (!std::filesystem::exists(entry.path() / "manifest.json", ignored)) continue;
    if (!newest.has_value() || iteration > newest->next_iteration) {
      newest = CheckpointFolder{.path = entry.path().string(), .next_iteration = iteration};
    }
  }
  return newest;
}

}  // namespace penstock::cli
