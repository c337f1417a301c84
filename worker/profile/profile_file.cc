#include "worker/profile/profile_file.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

// All ranks that this machine can have talk over the measured link.
constexpr uint32_t kRanksOnThisMachine = 1024;

v1::LayerTime ToProto(const MeasuredTime& time) {
  v1::LayerTime proto;
  proto.set_fixed_ns(time.fixed_ns);
  proto.set_target_token_ns(time.target_token_ns);
  proto.set_target_square_ns(time.target_square_ns);
  proto.set_cross_ns(time.cross_ns);
  proto.set_source_token_ns(time.source_token_ns);
  proto.set_source_square_ns(time.source_square_ns);
  proto.set_half_efficiency_tokens(time.half_efficiency_tokens);
  proto.set_packed_row_ns(time.packed_row_ns);
  proto.set_target_call_square_ns(time.target_call_square_ns);
  proto.set_source_call_square_ns(time.source_call_square_ns);
  proto.set_divided_row_ns(time.divided_row_ns);
  for (const EfficiencyPoint& point : time.efficiency) {
    v1::EfficiencyPoint* const added = proto.add_efficiency();
    added->set_tokens(point.tokens);
    added->set_factor(point.factor);
  }
  return proto;
}

v1::LayerBytes ToProto(const TokenBytes& bytes) {
  v1::LayerBytes proto;
  proto.set_source_token_bytes(bytes.source);
  proto.set_target_token_bytes(bytes.target);
  return proto;
}

v1::TensorCost ToProto(const TensorTime& time) {
  v1::TensorCost proto;
  proto.set_degree(static_cast<uint32_t>(time.degree));
  proto.set_efficiency(time.efficiency);
  *proto.mutable_forward() = ToProto(time.forward);
  if (time.expert > 1) proto.set_expert(static_cast<uint32_t>(time.expert));
  return proto;
}

v1::LayerCost ToProto(const std::string& name, const MeasuredLayer& layer) {
  v1::LayerCost proto;
  proto.set_name(name);
  proto.set_parameter_bytes(layer.parameter_bytes);
  *proto.mutable_forward() = ToProto(layer.forward);
  if (layer.backward.has_value()) {
    *proto.mutable_backward_input() = ToProto(layer.backward->input);
    *proto.mutable_backward_weight() = ToProto(layer.backward->weight);
  }
  proto.set_backward_ratio_none(layer.backward_ratio_none);
  // Recompute cannot save time; on a busy machine a short measurement may say so.
  const double selective = std::max(layer.backward_ratio_selective, layer.backward_ratio_none);
  proto.set_backward_ratio_selective(selective);
  proto.set_backward_ratio_full(std::max(layer.backward_ratio_full, selective));
  proto.set_backward_input_share(layer.backward_input_share);
  *proto.mutable_stored_none() = ToProto(layer.bytes.stored_none);
  *proto.mutable_stored_selective() = ToProto(layer.bytes.stored_selective);
  *proto.mutable_stored_full() = ToProto(layer.bytes.stored_full);
  *proto.mutable_peak() = ToProto(layer.bytes.peak);
  if (name != "head") *proto.mutable_split_backward_peak() = ToProto(layer.bytes.split_backward_peak);
  for (const TensorTime& time : layer.tensor) *proto.add_tensor() = ToProto(time);
  return proto;
}

uint32_t BytesPerElement(v1::DataType type) {
  if (type == v1::DATA_TYPE_FLOAT64) return 8;
  return type == v1::DATA_TYPE_BFLOAT16 ? 2 : 4;
}

}  // namespace

absl::StatusOr<v1::ModelSpec> ReadModelSpec(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  v1::ModelSpec model;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &model);
  if (parsed.ok()) return model;
  return absl::InvalidArgumentError(
      absl::StrCat("'", path, "' is no penstock.v1.ModelSpec: ", std::string(parsed.message())));
}

v1::CostProfile ToProto(const MeasuredProfile& profile, const v1::ModelSpec& model) {
  v1::CostProfile proto;
  proto.set_name("measured");
  proto.set_version(1);
  if (profile.encoder.has_value()) *proto.add_layers() = ToProto("encoder", *profile.encoder);
  *proto.add_layers() = ToProto(profile.encoder.has_value() ? "decoder" : "layer", profile.layer);
  if (profile.dense.has_value()) *proto.add_layers() = ToProto("dense", *profile.dense);
  v1::LayerCost& head = *proto.add_layers();
  head = ToProto("head", profile.head);
  head.set_loss_tokens_only(true);  // as stages run it
  proto.set_embedding_parameter_bytes(profile.embedding_parameter_bytes);
  *proto.mutable_embedding_forward() = ToProto(profile.embedding_forward);
  proto.set_state_bytes_per_parameter_byte(profile.state_bytes_per_parameter_byte);
  proto.set_sharded_state_bytes_per_parameter_byte(profile.sharded_state_bytes_per_parameter_byte);
  proto.set_optimizer_ns_per_parameter_byte(profile.step.parameter_byte_ns);
  proto.set_optimizer_fixed_ns(profile.step.fixed_ns);
  v1::Cluster& cluster = *proto.mutable_cluster();
  cluster.set_memory_bytes(profile.memory_bytes);
  cluster.set_intra_node_bytes_per_second(profile.link.bytes_per_second);
  cluster.set_inter_node_bytes_per_second(profile.link.bytes_per_second);
  cluster.set_intra_node_latency_ns(profile.link.latency_ns);
  cluster.set_inter_node_latency_ns(profile.link.latency_ns);
  const MeasuredLink& collective = profile.collective.link;
  cluster.set_intra_node_collective_bytes_per_second(collective.bytes_per_second);
  cluster.set_inter_node_collective_bytes_per_second(collective.bytes_per_second);
  cluster.set_intra_node_collective_latency_ns(collective.latency_ns);
  cluster.set_inter_node_collective_latency_ns(collective.latency_ns);
  for (const CollectiveOfRanks& measured : profile.collective.by_ranks) {
    v1::CollectiveSpeed& speed = *cluster.add_collective_speeds();
    speed.set_ranks(measured.ranks);
    speed.set_bytes_per_second(measured.link.bytes_per_second);
    speed.set_latency_ns(measured.link.latency_ns);
  }
  cluster.set_exchange_overlap(profile.collective.overlap);
  cluster.set_copy_bytes_per_second(profile.copy_bytes_per_second);
  cluster.set_gpus_per_node(kRanksOnThisMachine);
  proto.set_bytes_per_element(BytesPerElement(model.dtype()));
  return proto;
}

absl::Status WriteProfileFile(const v1::ModelSpec& model, const v1::CostProfile& profile,
                              const std::string& path) {
  v1::ProfileFile file;
  *file.mutable_model() = model;
  *file.mutable_profile() = profile;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(file, &json, options);
  if (!printed.ok())
    return absl::InternalError(absl::StrCat("the profile: ", std::string(printed.message())));
  return WriteFileAtomically(path, json);
}

}  // namespace penstock::worker
