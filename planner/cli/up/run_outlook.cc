#include "planner/cli/up/run_outlook.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/mesh/mesh_ranks.h"
#include "planner/cli/model/linear_layer_names.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/thousands.h"
#include "planner/cli/units.h"
#include "planner/core/contract/adapters.h"

namespace penstock::cli {
namespace {

uint32_t LayersCalled(const v1::ModelSpec& model, const std::string& kind) {
  if (kind == "encoder") return model.encoder_layers();
  if (kind == "decoder") return model.decoder_layers();
  const auto dense = static_cast<uint32_t>(model.dense_layers_size());
  if (kind == "dense") return dense;
  return kind == "layer" ? model.layers() - dense : 0;
}

// Of layers, tables and, where it is not a table, head. By the cost profile, which knows every kind of layer.
double Parameters(const v1::JobSpec& job) {
  const v1::ModelSpec& model = job.model();
  const int tables = model.architecture() == v1::ARCHITECTURE_T5 && !model.tied_embeddings() ? 2 : 1;
  double bytes = tables * job.profile().embedding_parameter_bytes();
  for (const v1::LayerCost& layer : job.profile().layers()) {
    const bool head = layer.name() == "head" && !model.tied_head();
    bytes += layer.parameter_bytes() * (head ? 1 : LayersCalled(model, layer.name()));
  }
  const int element = model.dtype() == v1::DATA_TYPE_BFLOAT16  ? 2
                      : model.dtype() == v1::DATA_TYPE_FLOAT64 ? 8
                                                               : 4;
  return bytes / element;
}

// "; adapters of rank 16 at q, v: 1,234 parameters learn".
std::string AdaptersText(const v1::ModelSpec& model) {
  if (!model.has_adapters()) return "";
  const bool t5 = model.architecture() == v1::ARCHITECTURE_T5;
  const int64_t decoders = t5 ? model.decoder_layers() : model.layers();
  const int64_t elements = decoders * core::AdapterElements(model, /*cross=*/t5, /*tensors=*/1) +
                           model.encoder_layers() * core::AdapterElements(model, /*cross=*/false, 1);
  return absl::StrCat("; adapters of rank ", model.adapters().rank(), " at ", NamesOf(model.adapters()), ": ",
                      WithThousands(static_cast<double>(elements)), " parameters learn");
}

std::string ModelText(const v1::JobSpec& job) {
  const v1::ModelSpec& model = job.model();
  const bool t5 = model.architecture() == v1::ARCHITECTURE_T5;
  const std::string layers =
      t5 ? absl::StrCat(model.encoder_layers(), " + ", model.decoder_layers()) : absl::StrCat(model.layers());
  const std::string type =
      absl::AsciiStrToLower(std::string(absl::StripPrefix(v1::DataType_Name(model.dtype()), "DATA_TYPE_")));
  return absl::StrCat(t5 ? "T5" : "GPT", ", ", layers, " layers of width ", model.hidden(), ", ",
                      model.heads(), " heads, vocabulary ", WithThousands(model.vocab()), ", ",
                      WithThousands(Parameters(job)), " parameters, ", type, AdaptersText(model));
}

// How often samples are seen that are `share` of those of the iterations that are left.
double PassesThrough(const RunOutlook& outlook, double share, uint64_t samples) {
  const uint64_t left = outlook.job.training().iterations() - outlook.job.first_iteration();
  return share * static_cast<double>(left * outlook.global_batch) /
         static_cast<double>(std::max<uint64_t>(1, samples));
}

std::string IterationsText(const RunOutlook& outlook) {
  const std::string text = absl::StrFormat("%d to %d, %d samples each", outlook.job.first_iteration(),
                                           outlook.job.training().iterations() - 1, outlook.global_batch);
  // Of a mixture each task has passes of its own.
  if (!outlook.tasks.empty()) return text;
  return absl::StrFormat("%s: %.2f times through the data", text, PassesThrough(outlook, 1, outlook.samples));
}

double EpochsOf(const TaskOutlook& task, const RunOutlook& outlook) {
  return PassesThrough(outlook, task.share, task.samples - task.dropped_samples);
}

std::string TaskText(const TaskOutlook& task, const RunOutlook& outlook) {
  return absl::StrFormat("%s: %.4g %% of the samples of a batch; has %s samples, %s tokens: %.2f epochs",
                         task.name, 100 * task.share, WithThousands(static_cast<double>(task.samples)),
                         WithThousands(static_cast<double>(task.tokens)), EpochsOf(task, outlook));
}

nlohmann::ordered_json ToJson(const TaskOutlook& task, const RunOutlook& outlook) {
  return {{"task", task.name},       {"share", task.share},
          {"samples", task.samples}, {"dropped_samples", task.dropped_samples},
          {"tokens", task.tokens},   {"epochs", EpochsOf(task, outlook)}};
}

std::string WorkersText(const RunOutlook& outlook) {
  return absl::StrCat(RanksOf(outlook.job), " workers",
                      outlook.threads > 0 ? absl::StrCat(", threads of each: ", outlook.threads) : "");
}

std::string MeshText(const RunOutlook& outlook) {
  const v1::Mesh& mesh = outlook.job.mesh();
  std::vector<std::string> degrees = {absl::StrCat(mesh.pipeline(), " stages"),
                                      absl::StrCat(mesh.data(), " replicas")};
  if (mesh.context() > 1) degrees.push_back(absl::StrCat(mesh.context(), " context ranks"));
  if (mesh.tensor() > 1) degrees.push_back(absl::StrCat(mesh.tensor(), " tensor ranks"));
  const std::string experts =
      mesh.expert() > 1 ? absl::StrCat(", experts divided over ", mesh.expert(), " of them") : "";
  return absl::StrCat(absl::StrJoin(degrees, " x "), experts, ": ", WorkersText(outlook));
}

// Of which the first batch takes one.
std::string StrategiesText(const RunOutlook& outlook) {
  const std::vector<v1::Strategy> all(outlook.job.strategies().begin(), outlook.job.strategies().end());
  std::string text = absl::StrCat(WorkersText(outlook), "; an iteration runs on the fastest of ", all.size(),
                                  ": ", StrategyNames(all));
  if (outlook.plan.has_value())
    absl::StrAppend(&text, "; the first on ", StrategyName(all[outlook.plan->strategy]));
  return text;
}

std::string PlanText(const PlanSummary& plan) {
  return absl::StrFormat("%s, schedule %s, layers %s; the first batch in %d micro-batches, bubble %.1f %%",
                         plan.policy, plan.schedule, absl::StrJoin(plan.layers_per_stage, " + "),
                         plan.micro_batches, 100 * plan.bubble);
}

std::string MemoryText(const RunOutlook& outlook) {
  const v1::PlanningOptions& planning = outlook.job.planning();
  const int64_t limit = planning.memory_limit_bytes();
  const std::string planned =
      absl::StrCat(WithThousands(outlook.plan->peak_memory_mb), " MB of the fullest rank");
  if (!planning.rank_memory_limits().empty()) {
    const auto [least, most] =
        std::ranges::minmax(planning.rank_memory_limits(), {}, [](const auto& rank) { return rank.bytes(); });
    return absl::StrCat(
        planned, limit == 0 ? "" : absl::StrCat("; ranks may take ", WithThousands(Megabytes(limit)), " MB"),
        "; ", planning.rank_memory_limits_size(), " of them ", WithThousands(Megabytes(least.bytes())),
        " to ", WithThousands(Megabytes(most.bytes())), " MB");
  }
  return limit == 0 ? planned
                    : absl::StrCat(planned, ", which may take ", WithThousands(Megabytes(limit)), " MB");
}

std::string TimeText(const RunOutlook& outlook) {
  const double iteration_ms = outlook.plan->makespan_ms;
  const uint64_t left = outlook.job.training().iterations() - outlook.job.first_iteration();
  const absl::Duration all = absl::Milliseconds(iteration_ms * static_cast<double>(left));
  return absl::StrFormat("%.1f ms an iteration planned, %s for all", iteration_ms,
                         absl::FormatDuration(absl::Trunc(all, absl::Seconds(1))));
}

}  // namespace

std::vector<std::string> Describe(const RunOutlook& outlook) {
  std::vector<std::string> lines;
  const auto line = [&](const char* name, const std::string& text) {
    lines.push_back(absl::StrFormat("  %-11s %s", name, text));
  };
  line("model", ModelText(outlook.job));
  line("iterations", IterationsText(outlook));
  for (const TaskOutlook& task : outlook.tasks) line("task", TaskText(task, outlook));
  if (outlook.job.strategies().empty())
    line("mesh", MeshText(outlook));
  else
    line("strategies", StrategiesText(outlook));
  const auto& weights = outlook.job.planning().share_weights();
  if (!weights.empty())
    line("shares", absl::StrCat("of ranks by these weights: ", absl::StrJoin(weights, ",")));
  if (!outlook.plan.has_value()) return lines;
  line("plan", PlanText(*outlook.plan));
  line("memory", MemoryText(outlook));
  line("time", TimeText(outlook));
  return lines;
}

nlohmann::ordered_json ToJson(const RunOutlook& outlook) {
  nlohmann::ordered_json json = {{"parameters", Parameters(outlook.job)},
                                 {"samples", outlook.samples},
                                 {"first_iteration", outlook.job.first_iteration()},
                                 {"iterations", outlook.job.training().iterations()},
                                 {"ranks", RanksOf(outlook.job)},
                                 {"threads", outlook.threads}};
  for (const v1::Strategy& strategy : outlook.job.strategies())
    json["strategies"].push_back(StrategyName(strategy));
  for (const uint32_t weight : outlook.job.planning().share_weights())
    json["share_weights"].push_back(weight);
  for (const TaskOutlook& task : outlook.tasks) json["tasks"].push_back(ToJson(task, outlook));
  json["plan"] = outlook.plan.has_value() ? ToJson(*outlook.plan) : nullptr;
  return json;
}

}  // namespace penstock::cli
