#include "planner/core/contract/profile_from_proto.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::core {
namespace {

constexpr double kNsPerMs = 1e6;

absl::Status Wrong(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("profile.", field, ": ", what));
}

absl::Status CheckNumber(absl::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return Wrong(field, absl::StrCat(value, "; must be finite and at least 0"));
}

absl::Status CheckTime(const std::string& field, const v1::LayerTime& time) {
  for (const double value :
       {time.fixed_ns(), time.target_token_ns(), time.target_square_ns(), time.cross_ns(),
        time.source_token_ns(), time.source_square_ns(), time.half_efficiency_tokens()}) {
    PENSTOCK_RETURN_IF_ERROR(CheckNumber(field, value));
  }
  return absl::OkStatus();
}

absl::Status CheckLayer(const std::string& field, const v1::LayerCost& layer) {
  PENSTOCK_RETURN_IF_ERROR(CheckNumber(absl::StrCat(field, ".parameter_bytes"), layer.parameter_bytes()));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(absl::StrCat(field, ".forward"), layer.forward()));
  for (const double ratio :
       {layer.backward_ratio_none(), layer.backward_ratio_selective(), layer.backward_ratio_full()}) {
    PENSTOCK_RETURN_IF_ERROR(CheckNumber(absl::StrCat(field, ".backward_ratio"), ratio));
  }
  for (const v1::LayerBytes* bytes :
       {&layer.stored_none(), &layer.stored_selective(), &layer.stored_full(), &layer.peak()}) {
    PENSTOCK_RETURN_IF_ERROR(CheckNumber(absl::StrCat(field, ".stored"), bytes->source_token_bytes()));
    PENSTOCK_RETURN_IF_ERROR(CheckNumber(absl::StrCat(field, ".stored"), bytes->target_token_bytes()));
  }
  if (!layer.has_forward() && layer.forward_ms().values().empty()) {
    return Wrong(field, "has neither a closed form (forward) nor a table (forward_ms)");
  }
  if (layer.backward_ratio_none() == 0) {
    return Wrong(absl::StrCat(field, ".backward_ratio_none"),
                 "0; set it even beside a table: it serves where the table has no value");
  }
  return absl::OkStatus();
}

absl::Status CheckAxis(absl::string_view field, const google::protobuf::RepeatedField<uint32_t>& axis) {
  for (int i = 0; i < axis.size(); ++i) {
    if (axis[i] == 0 || (i > 0 && axis[i] <= axis[i - 1])) {
      return Wrong(field, "must be ascending and above 0");
    }
  }
  return absl::OkStatus();
}

size_t TableSize(const v1::Grid& grid, TableAxes axes) {
  size_t size = grid.micro_batch_size_size();
  if (axes != TableAxes::kTarget) size *= grid.source_length_size();
  if (axes != TableAxes::kSource) size *= grid.target_length_size();
  return size;
}

absl::StatusOr<std::vector<double>> Nanoseconds(const std::string& field, const v1::Table& table,
                                                size_t size) {
  std::vector<double> values;
  if (table.values().empty()) return values;
  if (static_cast<size_t>(table.values_size()) != size) {
    return Wrong(field, absl::StrCat(table.values_size(), " values; the grid has ", size, " points"));
  }
  for (const double value : table.values()) {
    if (value < 0 || std::isinf(value)) return Wrong(field, "must be finite and at least 0, or NaN");
    values.push_back(value * kNsPerMs);
  }
  return values;
}

TableAxes AxesOf(const std::string& name) {
  if (name == "encoder") return TableAxes::kSource;
  return name == "decoder" ? TableAxes::kSourceTarget : TableAxes::kTarget;
}

absl::StatusOr<LayerProfile> LayerFromProto(const std::string& field, const v1::LayerCost& layer,
                                            const v1::Grid& grid) {
  PENSTOCK_RETURN_IF_ERROR(CheckLayer(field, layer));
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
  result.loss_tokens_only = layer.loss_tokens_only();
  result.stored = {LayerBytesFromProto(layer.stored_none()), LayerBytesFromProto(layer.stored_selective()),
                   LayerBytesFromProto(layer.stored_full())};
  result.peak = LayerBytesFromProto(layer.peak());
  result.axes = AxesOf(layer.name());
  const size_t size = TableSize(grid, result.axes);
  const v1::Table* tables[] = {&layer.backward_none_ms(), &layer.backward_selective_ms(),
                               &layer.backward_full_ms()};
  PENSTOCK_ASSIGN_OR_RETURN(result.forward_table_ns,
                            Nanoseconds(absl::StrCat(field, ".forward_ms"), layer.forward_ms(), size));
  for (int level = 0; level < kRecomputeLevels; ++level) {
    PENSTOCK_ASSIGN_OR_RETURN(result.backward_table_ns[level],
                              Nanoseconds(absl::StrCat(field, ".backward_ms"), *tables[level], size));
  }
  if (result.loss_tokens_only && (layer.name() != "head" || !result.forward_table_ns.empty())) {
    return Wrong(absl::StrCat(field, ".loss_tokens_only"), "is for a head with a closed form and no tables");
  }
  result.has_selective = layer.has_stored_selective() && (result.backward_ratio[kKeepSelective] > 0 ||
                                                          !result.backward_table_ns[kKeepSelective].empty());
  return result;
}

absl::StatusOr<Cluster> ClusterFromProto(const v1::Cluster& cluster) {
  if (cluster.intra_node_bytes_per_second() <= 0)
    return Wrong("cluster.intra_node_bytes_per_second", "must be above 0");
  if (cluster.gpus_per_node() == 0) return Wrong("cluster.gpus_per_node", "0; use at least 1");
  if (cluster.intra_node_latency_ns() < 0)
    return Wrong("cluster.intra_node_latency_ns", "must be at least 0");
  if (cluster.inter_node_latency_ns() < 0)
    return Wrong("cluster.inter_node_latency_ns", "must be at least 0");
  if (cluster.memory_bytes() < 0) return Wrong("cluster.memory_bytes", "must be at least 0");
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
  return result;
}

// Which layer a name stands for; nothing for a name that the architecture does not have.
std::optional<LayerKind> KindOf(const std::string& name, Architecture architecture) {
  if (name == "head") return kHead;
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
      return Wrong(absl::StrCat(field, ".name"),
                   absl::StrCat("'", layer.name(), "' is no layer of this architecture"));
    }
    if (profile->layers[*kind].present) return Wrong(absl::StrCat(field, ".name"), "occurs twice");
    PENSTOCK_ASSIGN_OR_RETURN(profile->layers[*kind], LayerFromProto(field, layer, proto.grid()));
  }
  const bool t5 = architecture == Architecture::kT5;
  if (!profile->layers[kDecoder].present)
    return Wrong("layers", t5 ? "'decoder' is missing" : "'layer' is missing");
  if (!profile->layers[kHead].present) return Wrong("layers", "'head' is missing");
  if (t5 && !profile->layers[kEncoder].present) return Wrong("layers", "'encoder' is missing");
  return absl::OkStatus();
}

}  // namespace

LayerTime LayerTimeFromProto(const v1::LayerTime& time) {
  return {time.fixed_ns(),        time.target_token_ns(),  time.target_square_ns(),      time.cross_ns(),
          time.source_token_ns(), time.source_square_ns(), time.half_efficiency_tokens()};
}

LayerBytes LayerBytesFromProto(const v1::LayerBytes& bytes) {
  return {bytes.source_token_bytes(), bytes.target_token_bytes()};
}

absl::StatusOr<Profile> ProfileFromProto(const v1::CostProfile& proto, Architecture architecture) {
  Profile profile;
  profile.version = proto.version();
  PENSTOCK_RETURN_IF_ERROR(CheckAxis("grid.micro_batch_size", proto.grid().micro_batch_size()));
  PENSTOCK_RETURN_IF_ERROR(CheckAxis("grid.source_length", proto.grid().source_length()));
  PENSTOCK_RETURN_IF_ERROR(CheckAxis("grid.target_length", proto.grid().target_length()));
  const auto axis = [](const google::protobuf::RepeatedField<uint32_t>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  profile.grid = {axis(proto.grid().micro_batch_size()), axis(proto.grid().source_length()),
                  axis(proto.grid().target_length())};
  PENSTOCK_RETURN_IF_ERROR(ReadLayers(proto, architecture, &profile));
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("embedding_parameter_bytes", proto.embedding_parameter_bytes()));
  PENSTOCK_RETURN_IF_ERROR(CheckTime("embedding_forward", proto.embedding_forward()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckNumber("state_bytes_per_parameter_byte", proto.state_bytes_per_parameter_byte()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckNumber("sharded_state_bytes_per_parameter_byte", proto.sharded_state_bytes_per_parameter_byte()));
  if (proto.sharded_state_bytes_per_parameter_byte() > proto.state_bytes_per_parameter_byte()) {
    return Wrong("sharded_state_bytes_per_parameter_byte", "is a part of state_bytes_per_parameter_byte");
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckNumber("optimizer_ns_per_parameter_byte", proto.optimizer_ns_per_parameter_byte()));
  profile.embedding_parameter_bytes = proto.embedding_parameter_bytes();
  profile.embedding_forward = LayerTimeFromProto(proto.embedding_forward());
  profile.state_bytes_per_parameter_byte = proto.state_bytes_per_parameter_byte();
  profile.sharded_state_bytes_per_parameter_byte = proto.sharded_state_bytes_per_parameter_byte();
  profile.optimizer_ns_per_parameter_byte = proto.optimizer_ns_per_parameter_byte();
  PENSTOCK_ASSIGN_OR_RETURN(profile.cluster, ClusterFromProto(proto.cluster()));
  return profile;
}

}  // namespace penstock::core
