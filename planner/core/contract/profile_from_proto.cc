#include "planner/core/contract/profile_from_proto.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/check_profile.h"
#include "planner/core/contract/wrong_in_profile.h"

namespace penstock::core {
namespace {

constexpr double kNsPerMs = 1e6;
// Another unit makes a factor of 1000 or more.
constexpr double kMostDisagreement = 500;

std::vector<double> Nanoseconds(const v1::Table& table) {
  std::vector<double> values;
  values.reserve(table.values_size());
  for (const double value : table.values()) values.push_back(value * kNsPerMs);
  return values;
}

TableAxes AxesOf(const std::string& name) {
  if (name == "encoder") return TableAxes::kSource;
  return name == "decoder" ? TableAxes::kSourceTarget : TableAxes::kTarget;
}

// A table and the closed form beside it measure the same layer in the same unit; how well the form fits is
// the profiler's business. Compared by their sums over the points that were measured.
absl::Status CheckAgreement(const std::string& field, const LayerProfile& layer, const Grid& grid,
                            const AttentionWindows& windows) {
  if (!layer.has_closed_form || layer.forward_table_ns.empty()) return absl::OkStatus();
  const std::vector<double> none = {0};
  const std::vector<double>& sources = layer.axes == TableAxes::kTarget ? none : grid.source_length;
  const std::vector<double>& targets = layer.axes == TableAxes::kSource ? none : grid.target_length;
  double table = 0;
  double form = 0;
  size_t point = 0;
  for (const double rows : grid.rows) {
    for (const double source : sources) {
      for (const double target : targets) {
        const double value = layer.forward_table_ns[point++];
        if (std::isnan(value)) continue;
        table += value;
        form += layer.forward(PaddedSums(static_cast<int32_t>(rows), static_cast<int32_t>(source),
                                         static_cast<int32_t>(target), 0,
                                         windows.LessSquare(static_cast<int64_t>(target))));
      }
    }
  }
  if (table <= form * kMostDisagreement && form <= table * kMostDisagreement) return absl::OkStatus();
  return WrongInProfile(
      field, absl::StrCat("its values are ", table / form,
                          " times those of the closed form (forward) on the same shapes; the table is in "
                          "milliseconds, the closed form in nanoseconds"));
}

absl::StatusOr<LayerProfile> LayerFromProto(const std::string& field, const v1::LayerCost& layer,
                                            const Grid& grid, const AttentionWindows& windows) {
  LayerProfile result;
  result.present = true;
  result.parameter_bytes = layer.parameter_bytes();
  result.has_closed_form = layer.has_forward();
  result.forward = LayerTimeFromProto(layer.forward());
  result.backward_ratio = {layer.backward_ratio_none(), layer.backward_ratio_selective(),
                           layer.backward_ratio_full()};
  // Full recompute runs the forward pass once more.
  if (result.backward_ratio[kKeepInput] == 0) {
    result.backward_ratio[kKeepInput] = result.backward_ratio[kKeepAll] + 1;
  }
  result.backward_input_share = layer.backward_input_share();
  if (layer.has_backward_input()) {
    result.backward_forms = {LayerTimeFromProto(layer.backward_input()),
                             LayerTimeFromProto(layer.backward_weight())};
  }
  result.loss_tokens_only = layer.loss_tokens_only();
  result.stored = {LayerBytesFromProto(layer.stored_none()), LayerBytesFromProto(layer.stored_selective()),
                   LayerBytesFromProto(layer.stored_full())};
  result.peak = LayerBytesFromProto(layer.peak());
  if (layer.has_split_backward_peak())
    result.split_backward_peak = LayerBytesFromProto(layer.split_backward_peak());
  result.axes = AxesOf(layer.name());
  const v1::Table* tables[] = {&layer.backward_none_ms(), &layer.backward_selective_ms(),
                               &layer.backward_full_ms()};
  result.forward_table_ns = Nanoseconds(layer.forward_ms());
  for (int level = 0; level < kRecomputeLevels; ++level) {
    result.backward_table_ns[level] = Nanoseconds(*tables[level]);
  }
  PENSTOCK_RETURN_IF_ERROR(CheckAgreement(absl::StrCat(field, ".forward_ms"), result, grid, windows));
  if (result.loss_tokens_only && (layer.name() != "head" || !result.forward_table_ns.empty())) {
    return WrongInProfile(absl::StrCat(field, ".loss_tokens_only"),
                          "is for a head with a closed form and no tables");
  }
  for (const v1::TensorCost& cost : layer.tensor()) {
    result.tensor.push_back({static_cast<int32_t>(cost.degree()),
                             std::max(static_cast<int32_t>(cost.expert()), 1), cost.efficiency(),
                             cost.has_forward(), LayerTimeFromProto(cost.forward())});
  }
  result.has_selective = layer.has_stored_selective() && (result.backward_ratio[kKeepSelective] > 0 ||
                                                          !result.backward_table_ns[kKeepSelective].empty());
  return result;
}

Cluster ClusterFromProto(const v1::Cluster& cluster) {
  Cluster result;
  result.memory_bytes = cluster.memory_bytes();
  result.intra_node_bytes_per_second = cluster.intra_node_bytes_per_second();
  // One node: the other link is never used.
  result.inter_node_bytes_per_second = cluster.inter_node_bytes_per_second() > 0
                                           ? cluster.inter_node_bytes_per_second()
                                           : cluster.intra_node_bytes_per_second();
  result.intra_node_latency_ns = cluster.intra_node_latency_ns();
  result.inter_node_latency_ns = cluster.inter_node_latency_ns();
  result.gpus_per_node = static_cast<int32_t>(cluster.gpus_per_node());
  result.attention_hides_exchange = cluster.attention_hides_exchange();
  result.exchange_overlap = cluster.exchange_overlap();
  result.copy_bytes_per_second = cluster.copy_bytes_per_second();
  const auto given = [](auto value, auto otherwise) { return value > 0 ? value : otherwise; };
  result.intra_node_collective_bytes_per_second =
      given(cluster.intra_node_collective_bytes_per_second(), result.intra_node_bytes_per_second);
  result.inter_node_collective_bytes_per_second =
      given(cluster.inter_node_collective_bytes_per_second(), result.inter_node_bytes_per_second);
  result.intra_node_collective_latency_ns =
      given(cluster.intra_node_collective_latency_ns(), result.intra_node_latency_ns);
  result.inter_node_collective_latency_ns =
      given(cluster.inter_node_collective_latency_ns(), result.inter_node_latency_ns);
  for (const v1::CollectiveSpeed& speed : cluster.collective_speeds())
    result.collective_speeds.push_back(
        {static_cast<int32_t>(speed.ranks()), speed.bytes_per_second(), speed.latency_ns()});
  return result;
}

// Which layer a name stands for; nothing for a name that the architecture does not have.
std::optional<LayerKind> KindOf(const std::string& name, Architecture architecture) {
  if (name == "head") return kHead;
  if (architecture == Architecture::kGpt && name == "dense") return kDense;
  if (architecture == Architecture::kGpt) return name == "layer" ? std::optional(kDecoder) : std::nullopt;
  if (name == "encoder") return kEncoder;
  return name == "decoder" ? std::optional(kDecoder) : std::nullopt;
}

absl::Status ReadLayers(const v1::CostProfile& proto, Architecture architecture, Profile* profile) {
  for (int i = 0; i < proto.layers_size(); ++i) {
    const v1::LayerCost& layer = proto.layers(i);
    const std::string field = absl::StrCat("layers[", i, "]");
    const std::optional<LayerKind> kind = KindOf(layer.name(), architecture);
    if (!kind.has_value()) {
      return WrongInProfile(absl::StrCat(field, ".name"),
                            absl::StrCat("'", layer.name(), "' is no layer of this architecture"));
    }
    if (profile->layers[*kind].present) return WrongInProfile(absl::StrCat(field, ".name"), "occurs twice");
    PENSTOCK_ASSIGN_OR_RETURN(profile->layers[*kind],
                              LayerFromProto(field, layer, profile->grid, profile->windows));
  }
  const bool t5 = architecture == Architecture::kT5;
  if (!profile->layers[kDecoder].present)
    return WrongInProfile("layers", t5 ? "'decoder' is missing" : "'layer' is missing");
  if (!profile->layers[kHead].present) return WrongInProfile("layers", "'head' is missing");
  if (t5 && !profile->layers[kEncoder].present) return WrongInProfile("layers", "'encoder' is missing");
  return absl::OkStatus();
}

}  // namespace

LayerTime LayerTimeFromProto(const v1::LayerTime& time) {
  std::vector<EfficiencyPoint> efficiency;
  for (const v1::EfficiencyPoint& point : time.efficiency())
    efficiency.push_back({point.tokens(), point.factor()});
  return {.fixed_ns = time.fixed_ns(),
          .target_token_ns = time.target_token_ns(),
          .target_square_ns = time.target_square_ns(),
          .cross_ns = time.cross_ns(),
          .source_token_ns = time.source_token_ns(),
          .source_square_ns = time.source_square_ns(),
          .half_efficiency_tokens = time.half_efficiency_tokens(),
          .packed_row_ns = time.packed_row_ns(),
          .target_call_square_ns = time.target_call_square_ns(),
          .source_call_square_ns = time.source_call_square_ns(),
          .divided_row_ns = time.divided_row_ns(),
          .efficiency = std::move(efficiency)};
}

LayerBytes LayerBytesFromProto(const v1::LayerBytes& bytes) {
  return {bytes.source_token_bytes(), bytes.target_token_bytes()};
}

std::vector<SlowRank> SlowRanksFromProto(const v1::CostProfile& profile) {
  std::vector<SlowRank> slow;
  for (const v1::SlowRank& one : profile.slow_ranks())
    slow.push_back({static_cast<int32_t>(one.rank()), one.factor()});
  return slow;
}

std::vector<SlowLink> SlowLinksFromProto(const v1::CostProfile& profile) {
  std::vector<SlowLink> slow;
  for (const v1::SlowLink& one : profile.slow_links())
    slow.push_back({static_cast<int32_t>(one.from()), static_cast<int32_t>(one.to()), one.factor()});
  return slow;
}

absl::StatusOr<Profile> ProfileFromProto(const v1::CostProfile& proto, Architecture architecture,
                                         const AttentionWindows& windows) {
  PENSTOCK_RETURN_IF_ERROR(CheckProfile(proto));
  Profile profile;
  profile.windows = windows;
  profile.version = proto.version();
  const auto axis = [](const google::protobuf::RepeatedField<uint32_t>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  profile.grid = {axis(proto.grid().micro_batch_size()), axis(proto.grid().source_length()),
                  axis(proto.grid().target_length())};
  PENSTOCK_RETURN_IF_ERROR(ReadLayers(proto, architecture, &profile));
  profile.embedding_parameter_bytes = proto.embedding_parameter_bytes();
  profile.embedding_forward = LayerTimeFromProto(proto.embedding_forward());
  profile.state_bytes_per_parameter_byte = proto.state_bytes_per_parameter_byte();
  profile.sharded_state_bytes_per_parameter_byte = proto.sharded_state_bytes_per_parameter_byte();
  profile.optimizer_ns_per_parameter_byte = proto.optimizer_ns_per_parameter_byte();
  profile.optimizer_fixed_ns = proto.optimizer_fixed_ns();
  profile.cluster = ClusterFromProto(proto.cluster());
  profile.slow_ranks = SlowRanksFromProto(proto);
  profile.slow_links = SlowLinksFromProto(proto);
  profile.pass_noise = proto.pass_noise();
  for (const v1::ExpertLoad& load : proto.expert_loads())
    profile.expert_loads.push_back({static_cast<int32_t>(load.ranks()), load.fullest()});
  return profile;
}

}  // namespace penstock::core
