#include "planner/cli/up/metrics_file.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/names/part_name.h"
#include "common/status/status_macros.h"
#include "planner/cli/dropped_rows.h"
#include "planner/cli/expert_layers.h"
#include "planner/cli/units.h"
#include "planner/cli/up/run_summary.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

bool IsBefore(absl::string_view line, uint64_t first_iteration) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("iteration") || !json["iteration"].is_number_unsigned())
    return false;
  return json["iteration"].get<uint64_t>() < first_iteration;
}

absl::Status KeepBefore(const std::string& path, uint64_t first_iteration) {
  const absl::StatusOr<std::string> old = ReadFile(path);
  if (absl::IsNotFound(old.status())) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(old.status());
  std::string kept;
  for (const absl::string_view line : absl::StrSplit(*old, '\n')) {
    if (IsBefore(line, first_iteration)) absl::StrAppend(&kept, line, "\n");
  }
  return WriteFileAtomically(path, kept);
}

void AddLoads(const char* name, const std::optional<LayerLoads>& loads, Json& line) {
  if (!loads.has_value()) return;
  const LayerLoad& worst = loads->layers.front();
  line[name] = {{"mean", loads->mean}, {"worst", worst.load}, {"worst_layer", worst.layer}};
}

// nlohmann writes the shortest number that is read as the same.
std::string LineOf(const v1::IterationSummary& iteration, const std::vector<TaskCounts>& tasks) {
  Json line = {{"iteration", iteration.iteration()},
               {"loss", iteration.loss()},
               {"gradient_norm", iteration.gradient_norm()},
               {"learning_rate", iteration.learning_rate()},
               {"tokens", iteration.real_tokens()},
               {"loss_tokens", iteration.loss_tokens()},
               {"tokens_per_second", TokensPerSecond(iteration)},
               {"micro_batches", iteration.micro_batches()},
               {"strategy", iteration.strategy()},
               {"measured_ms", Milliseconds(iteration.measured_ns())},
               {"planned_ms", Milliseconds(iteration.predicted_ns())},
               {"bubble", iteration.bubble()},
               {"planned_bubble", iteration.predicted_bubble()}};
  for (const v1::PartNorm& part : iteration.part_norms())
    line["gradient_norms"][PartName(part.part())] = part.norm();
  if (iteration.router_balance_loss() > 0) line["router_balance_loss"] = iteration.router_balance_loss();
  if (iteration.router_z_loss() > 0) line["router_z_loss"] = iteration.router_z_loss();
  if (iteration.routed_expert_rows() > 0) line["dropped_expert_rows"] = DroppedShare(iteration);
  AddLoads("fullest_expert_ranks", RankLoads(iteration), line);
  AddLoads("fullest_experts", ExpertLoads(iteration), line);
  if (!tasks.empty()) line["tasks"] = ToJson(tasks);
  return line.dump();
}

}  // namespace

absl::StatusOr<MetricsFile> MetricsFile::Open(const std::string& path, uint64_t first_iteration) {
  PENSTOCK_RETURN_IF_ERROR(KeepBefore(path, first_iteration));
  std::ofstream file(path, std::ios::app);
  if (!file) return absl::PermissionDeniedError(absl::StrCat("cannot write '", path, "'"));
  return MetricsFile(path, std::move(file));
}

absl::Status MetricsFile::Add(const v1::IterationSummary& iteration, const std::vector<TaskCounts>& tasks) {
  return Write(LineOf(iteration, tasks));
}

absl::Status MetricsFile::AddValidation(const ValidatedCheckpoint& checkpoint) {
  Json line = {{"iteration", checkpoint.next_iteration - 1}, {"validation_loss", checkpoint.loss}};
  for (const TaskLoss& task : checkpoint.tasks) line["validation_tasks"][task.task] = task.loss;
  return Write(line.dump());
}

absl::Status MetricsFile::Write(const std::string& line) {
  file_ << line << std::endl;
  if (file_) return absl::OkStatus();
  file_.clear();
  return absl::UnavailableError(absl::StrCat("cannot write '", path_, "'"));
}

}  // namespace penstock::cli
