#include "planner/core/contract/check_profile.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/check_efficiency.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/wrong_in_profile.h"

namespace penstock::core {
namespace {

// Above these no figure of a real machine lies, and a wrong unit does.
struct Limit {
  double most;
  const char* unit;
};
constexpr Limit kPassNs = {1e12, "nanoseconds"};          // 1000 s
constexpr Limit kTokenNs = {1e9, "nanoseconds a token"};  // 1 s
constexpr Limit kSquareNs = {1e6, "nanoseconds a squared token"};
constexpr Limit kTokens = {1e9, "tokens"};
constexpr Limit kTokenBytes = {1e12, "bytes a token"};
constexpr Limit kParameterBytes = {1e13, "bytes"};  // 10 TB a layer
constexpr Limit kStateRatio = {100, "bytes of state for each byte of parameters"};
constexpr Limit kOptimizerNs = {1e6, "nanoseconds a byte"};
constexpr Limit kBackwardRatio = {1000, "units of the forward pass"};
constexpr Limit kEfficiency = {100, "parts of the speed of a whole layer"};
constexpr Limit kShare = {1, "a share between 0 and 1"};
constexpr Limit kTrainingFactor = {100, "times what computing takes alone"};
constexpr Limit kNoise = {1, "parts of a pass, 0.05 for 5 %"};
constexpr double kMostSlowness = 100;
constexpr Limit kTableMs = {1e9, "milliseconds"};  // 11 days
// What-if questions set links that are as good as free.
constexpr Limit kBandwidth = {1e22, "bytes a second"};
constexpr Limit kLatencyNs = {1e12, "nanoseconds"};
constexpr Limit kMemoryBytes = {static_cast<double>(kMostMemoryBytes), "bytes"};
constexpr uint32_t kMostGpus = 1 << 20;
// Below this a link moves nothing. Bytes a second.
constexpr double kLeastBandwidth = 1;
// Of an axis of the grid: the product of three is far from overflowing.
constexpr int kMostAxisPoints = 4096;

absl::Status Check(const std::string& field, double value, const Limit& limit) {
  if (!std::isfinite(value) || value < 0) {
    return WrongInProfile(field, absl::StrCat(value, "; must be finite and at least 0"));
  }
  if (value <= limit.most) return absl::OkStatus();
  return WrongInProfile(field,
                        absl::StrCat(value, "; more than ", limit.most, ": is it in ", limit.unit, "?"));
}

absl::Status CheckTime(const std::string& field, const v1::LayerTime& time) {
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".fixed_ns", time.fixed_ns(), kPassNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".target_token_ns", time.target_token_ns(), kTokenNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".target_square_ns", time.target_square_ns(), kSquareNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".cross_ns", time.cross_ns(), kSquareNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".source_token_ns", time.source_token_ns(), kTokenNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".source_square_ns", time.source_square_ns(), kSquareNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".packed_row_ns", time.packed_row_ns(), kPassNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".target_call_square_ns", time.target_call_square_ns(), kSquareNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".source_call_square_ns", time.source_call_square_ns(), kSquareNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".divided_row_ns", time.divided_row_ns(), kTokenNs));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".half_efficiency_tokens", time.half_efficiency_tokens(), kTokens));
  return CheckEfficiency(field + ".efficiency", time);
}

// Of a head or the embeddings, which have no attention.
absl::Status CheckTimeOfTokens(const std::string& field, const v1::LayerTime& time) {
  PENSTOCK_RETURN_IF_ERROR(CheckTime(field, time));
  const std::pair<const char*, double> of_attention[] = {
      {".packed_row_ns", time.packed_row_ns()},
      {".target_call_square_ns", time.target_call_square_ns()},
      {".source_call_square_ns", time.source_call_square_ns()},
      {".divided_row_ns", time.divided_row_ns()}};
  for (const auto& [name, value] : of_attention) {
    if (value == 0) continue;
    return WrongInProfile(absl::StrCat(field, name),
                          absl::StrCat(value, "; leave it out: without attention, rows take nothing"));
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(const std::string& field, const v1::LayerBytes& bytes) {
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".source_token_bytes", bytes.source_token_bytes(), kTokenBytes));
  return Check(field + ".target_token_bytes", bytes.target_token_bytes(), kTokenBytes);
}

absl::Status CheckTable(const std::string& field, const v1::Table& table, size_t points) {
  if (table.values().empty()) return absl::OkStatus();
  if (static_cast<size_t>(table.values_size()) != points) {
    return WrongInProfile(field,
                          absl::StrCat(table.values_size(), " values; the grid has ", points, " points"));
  }
  bool measured = false;
  for (int i = 0; i < table.values_size(); ++i) {
    const double value = table.values(i);
    if (std::isnan(value)) continue;  // not profiled
    measured = true;
    if (value > kTableMs.most || !(value >= 0)) {
      return WrongInProfile(absl::StrCat(field, ".values[", i, "]"),
                            absl::StrCat(value, "; must be at least 0 and at most ", kTableMs.most,
                                         " milliseconds, or NaN where nothing was measured"));
    }
  }
  return measured ? absl::OkStatus() : WrongInProfile(field, "has no measured point: every value is NaN");
}

// Recompute is added to the backward pass. 0: not given.
absl::Status CheckRatios(const std::string& field, const v1::LayerCost& layer) {
  const auto check = [&](const char* name, double ratio) {
    if (ratio == 0 || ratio >= layer.backward_ratio_none()) return absl::OkStatus();
    return WrongInProfile(
        absl::StrCat(field, ".", name),
        absl::StrCat(ratio, "; must be at least backward_ratio_none, ", layer.backward_ratio_none()));
  };
  PENSTOCK_RETURN_IF_ERROR(check("backward_ratio_selective", layer.backward_ratio_selective()));
  return check("backward_ratio_full", layer.backward_ratio_full());
}

absl::Status CheckTensorCosts(const std::string& field, const v1::LayerCost& layer) {
  const auto check_forward = layer.name() == "head" ? CheckTimeOfTokens : CheckTime;
  uint32_t before = 1;
  uint32_t expert_before = 1;
  for (int i = 0; i < layer.tensor_size(); ++i) {
    const v1::TensorCost& cost = layer.tensor(i);
    const std::string name = absl::StrCat(field, ".tensor[", i, "]");
    const uint32_t expert = std::max(cost.expert(), uint32_t{1});
    const bool follows = cost.degree() > before || (cost.degree() == before && expert > expert_before);
    if (!follows || cost.degree() > kMostTensorRanks) {
      return WrongInProfile(
          name + ".degree",
          absl::StrCat(
              cost.degree(), expert > 1 ? absl::StrCat(" with expert ", expert) : "",
              "; degrees are ascending, of each the expert ranks, from 2 (with expert ranks from 1) to ",
              kMostTensorRanks));
    }
    if (expert > kMostContextRanks * kMostTensorRanks || (expert > 1 && expert % cost.degree() != 0))
      return WrongInProfile(name + ".expert", absl::StrCat(expert, "; it is a multiple of the degree"));
    before = cost.degree();
    expert_before = expert;
    PENSTOCK_RETURN_IF_ERROR(Check(name + ".efficiency", cost.efficiency(), kEfficiency));
    if (cost.efficiency() == 0) return WrongInProfile(name + ".efficiency", "0; must be above 0");
    PENSTOCK_RETURN_IF_ERROR(check_forward(name + ".forward", cost.forward()));
  }
  return absl::OkStatus();
}

constexpr char kHeadIsNotDivided[] = "a head has none; its backward pass is not divided";

// Closed forms of the parts of a backward pass.
absl::Status CheckBackwardForms(const std::string& field, const v1::LayerCost& layer) {
  PENSTOCK_RETURN_IF_ERROR(CheckTime(field + ".backward_input", layer.backward_input()));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(field + ".backward_weight", layer.backward_weight()));
  if (!layer.has_backward_input() && !layer.has_backward_weight()) return absl::OkStatus();
  const std::string name = field + (layer.has_backward_input() ? ".backward_input" : ".backward_weight");
  if (layer.has_backward_input() != layer.has_backward_weight())
    return WrongInProfile(name, "set backward_input and backward_weight both, or neither");
  if (layer.name() == "head") return WrongInProfile(name, kHeadIsNotDivided);
  const bool tables = layer.has_forward_ms() || layer.has_backward_none_ms() ||
                      layer.has_backward_selective_ms() || layer.has_backward_full_ms();
  if (tables || !layer.has_forward())
    return WrongInProfile(name, "goes with a closed form (forward) alone; leave it out beside tables");
  return absl::OkStatus();
}

absl::Status CheckLayer(const std::string& field, const v1::LayerCost& layer, size_t points) {
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".parameter_bytes", layer.parameter_bytes(), kParameterBytes));
  const auto check_forward = layer.name() == "head" ? CheckTimeOfTokens : CheckTime;
  PENSTOCK_RETURN_IF_ERROR(check_forward(field + ".forward", layer.forward()));
  PENSTOCK_RETURN_IF_ERROR(
      Check(field + ".backward_ratio_none", layer.backward_ratio_none(), kBackwardRatio));
  PENSTOCK_RETURN_IF_ERROR(
      Check(field + ".backward_ratio_selective", layer.backward_ratio_selective(), kBackwardRatio));
  PENSTOCK_RETURN_IF_ERROR(
      Check(field + ".backward_ratio_full", layer.backward_ratio_full(), kBackwardRatio));
  PENSTOCK_RETURN_IF_ERROR(Check(field + ".backward_input_share", layer.backward_input_share(), kShare));
  PENSTOCK_RETURN_IF_ERROR(CheckBytes(field + ".stored_none", layer.stored_none()));
  PENSTOCK_RETURN_IF_ERROR(CheckBytes(field + ".stored_selective", layer.stored_selective()));
  PENSTOCK_RETURN_IF_ERROR(CheckBytes(field + ".stored_full", layer.stored_full()));
  PENSTOCK_RETURN_IF_ERROR(CheckBytes(field + ".peak", layer.peak()));
  PENSTOCK_RETURN_IF_ERROR(CheckBytes(field + ".split_backward_peak", layer.split_backward_peak()));
  if (layer.name() == "head" && layer.has_split_backward_peak())
    return WrongInProfile(field + ".split_backward_peak", kHeadIsNotDivided);
  PENSTOCK_RETURN_IF_ERROR(CheckTable(field + ".forward_ms", layer.forward_ms(), points));
  PENSTOCK_RETURN_IF_ERROR(CheckTable(field + ".backward_none_ms", layer.backward_none_ms(), points));
  PENSTOCK_RETURN_IF_ERROR(
      CheckTable(field + ".backward_selective_ms", layer.backward_selective_ms(), points));
  PENSTOCK_RETURN_IF_ERROR(CheckTable(field + ".backward_full_ms", layer.backward_full_ms(), points));
  if (!layer.has_forward() && layer.forward_ms().values().empty()) {
    return WrongInProfile(field, "has neither a closed form (forward) nor a table (forward_ms)");
  }
  if (layer.backward_ratio_none() == 0) {
    return WrongInProfile(field + ".backward_ratio_none",
                          "0; set it even beside a table: it serves where the table has no value");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckBackwardForms(field, layer));
  PENSTOCK_RETURN_IF_ERROR(CheckTensorCosts(field, layer));
  return CheckRatios(field, layer);
}

// Rows, or tokens of a row.
absl::Status CheckAxis(const std::string& field, const google::protobuf::RepeatedField<uint32_t>& axis) {
  if (axis.size() > kMostAxisPoints) {
    return WrongInProfile(field, absl::StrCat(axis.size(), " points; use at most ", kMostAxisPoints));
  }
  for (int i = 0; i < axis.size(); ++i) {
    if (axis[i] == 0 || (i > 0 && axis[i] <= axis[i - 1])) {
      return WrongInProfile(absl::StrCat(field, "[", i, "]"),
                            absl::StrCat(axis[i], "; an axis must be ascending and above 0"));
    }
    if (axis[i] > kMostSequenceLength) {
      return WrongInProfile(absl::StrCat(field, "[", i, "]"),
                            absl::StrCat(axis[i], "; use at most ", kMostSequenceLength));
    }
  }
  return absl::OkStatus();
}

bool HasSource(const std::string& layer) { return layer == "encoder" || layer == "decoder"; }
bool HasTarget(const std::string& layer) { return layer != "encoder"; }

size_t GridPoints(const v1::Grid& grid, const std::string& layer) {
  size_t points = grid.micro_batch_size_size();
  if (HasSource(layer)) points *= grid.source_length_size();
  if (HasTarget(layer)) points *= grid.target_length_size();
  return points;
}

absl::Status CheckBandwidth(const std::string& field, double value) {
  PENSTOCK_RETURN_IF_ERROR(Check(field, value, kBandwidth));
  if (value >= kLeastBandwidth) return absl::OkStatus();
  return WrongInProfile(field, absl::StrCat(value, "; use at least ", kLeastBandwidth, " byte a second"));
}

absl::Status CheckCollectiveSpeeds(const v1::Cluster& cluster) {
  for (int i = 0; i < cluster.collective_speeds_size(); ++i) {
    const v1::CollectiveSpeed& speed = cluster.collective_speeds(i);
    const std::string field = absl::StrCat("cluster.collective_speeds[", i, "]");
    const uint32_t before = i == 0 ? 1 : cluster.collective_speeds(i - 1).ranks();
    if (speed.ranks() <= before || speed.ranks() > kMostGpus) {
      return WrongInProfile(absl::StrCat(field, ".ranks"),
                            absl::StrCat(speed.ranks(), "; ascending, from 2 to ", kMostGpus));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckBandwidth(field + ".bytes_per_second", speed.bytes_per_second()));
    PENSTOCK_RETURN_IF_ERROR(
        Check(field + ".latency_ns", static_cast<double>(speed.latency_ns()), kLatencyNs));
  }
  return absl::OkStatus();
}

absl::Status CheckCluster(const v1::Cluster& cluster) {
  const auto intra = cluster.intra_node_bytes_per_second(), inter = cluster.inter_node_bytes_per_second();
  PENSTOCK_RETURN_IF_ERROR(CheckBandwidth("cluster.intra_node_bytes_per_second", intra));
  // 0: there is one node.
  if (inter != 0) PENSTOCK_RETURN_IF_ERROR(CheckBandwidth("cluster.inter_node_bytes_per_second", inter));
  PENSTOCK_RETURN_IF_ERROR(Check("cluster.intra_node_latency_ns",
                                 static_cast<double>(cluster.intra_node_latency_ns()), kLatencyNs));
  PENSTOCK_RETURN_IF_ERROR(Check("cluster.inter_node_latency_ns",
                                 static_cast<double>(cluster.inter_node_latency_ns()), kLatencyNs));
  for (const auto& [field, value] : {std::pair("cluster.intra_node_collective_bytes_per_second",
                                               cluster.intra_node_collective_bytes_per_second()),
                                     std::pair("cluster.inter_node_collective_bytes_per_second",
                                               cluster.inter_node_collective_bytes_per_second())}) {
    if (value != 0) PENSTOCK_RETURN_IF_ERROR(CheckBandwidth(field, value));
  }
  PENSTOCK_RETURN_IF_ERROR(Check("cluster.intra_node_collective_latency_ns",
                                 static_cast<double>(cluster.intra_node_collective_latency_ns()),
                                 kLatencyNs));
  PENSTOCK_RETURN_IF_ERROR(Check("cluster.inter_node_collective_latency_ns",
                                 static_cast<double>(cluster.inter_node_collective_latency_ns()),
                                 kLatencyNs));
  PENSTOCK_RETURN_IF_ERROR(CheckCollectiveSpeeds(cluster));
  PENSTOCK_RETURN_IF_ERROR(Check("cluster.exchange_overlap", cluster.exchange_overlap(), kShare));
  if (cluster.copy_bytes_per_second() != 0)
    PENSTOCK_RETURN_IF_ERROR(
        CheckBandwidth("cluster.copy_bytes_per_second", cluster.copy_bytes_per_second()));
  PENSTOCK_RETURN_IF_ERROR(
      Check("cluster.memory_bytes", static_cast<double>(cluster.memory_bytes()), kMemoryBytes));
  if (cluster.gpus_per_node() == 0) return WrongInProfile("cluster.gpus_per_node", "0; use at least 1");
  if (cluster.gpus_per_node() > kMostGpus) {
    return WrongInProfile("cluster.gpus_per_node",
                          absl::StrCat(cluster.gpus_per_node(), "; use at most ", kMostGpus));
  }
  return absl::OkStatus();
}

absl::Status CheckSlowness(const std::string& field, double factor, double most) {
  if (factor > 1 && factor <= most) return absl::OkStatus();
  return WrongInProfile(field, absl::StrCat(factor, "; above 1, at most ", most));
}

absl::Status CheckSlowRanks(const v1::CostProfile& profile) {
  for (int i = 0; i < profile.slow_ranks_size(); ++i) {
    const v1::SlowRank& slow = profile.slow_ranks(i);
    const std::string field = absl::StrCat("slow_ranks[", i, "]");
    PENSTOCK_RETURN_IF_ERROR(CheckSlowness(absl::StrCat(field, ".factor"), slow.factor(), kMostSlowness));
    if (i > 0 && slow.rank() <= profile.slow_ranks(i - 1).rank())
      return WrongInProfile(absl::StrCat(field, ".rank"), absl::StrCat(slow.rank(), "; ranks must ascend"));
  }
  return absl::OkStatus();
}

absl::Status CheckSlowLinks(const v1::CostProfile& profile) {
  for (int i = 0; i < profile.slow_links_size(); ++i) {
    const v1::SlowLink& slow = profile.slow_links(i);
    const std::string field = absl::StrCat("slow_links[", i, "]");
    PENSTOCK_RETURN_IF_ERROR(CheckSlowness(absl::StrCat(field, ".factor"), slow.factor(), kMostLinkSlowness));
    if (slow.from() == slow.to())
      return WrongInProfile(absl::StrCat(field, ".to"),
                            absl::StrCat(slow.to(), "; another rank than `from`"));
    if (i == 0) continue;
    const v1::SlowLink& before = profile.slow_links(i - 1);
    if (std::pair(slow.from(), slow.to()) <= std::pair(before.from(), before.to())) {
      return WrongInProfile(absl::StrCat(field, ".from"),
                            absl::StrCat(slow.from(), " to ", slow.to(), "; links must ascend"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckExpertLoads(const v1::CostProfile& profile) {
  for (int i = 0; i < profile.expert_loads_size(); ++i) {
    const v1::ExpertLoad& load = profile.expert_loads(i);
    const std::string field = absl::StrCat("expert_loads[", i, "]");
    const uint32_t before = i == 0 ? 1 : profile.expert_loads(i - 1).ranks();
    if (load.ranks() <= before || load.ranks() > kMostContextRanks * kMostTensorRanks) {
      return WrongInProfile(
          absl::StrCat(field, ".ranks"),
          absl::StrCat(load.ranks(), "; ascending, from 2 to ", kMostContextRanks * kMostTensorRanks));
    }
    if (!(load.fullest() >= 1 && load.fullest() <= load.ranks())) {
      return WrongInProfile(absl::StrCat(field, ".fullest"),
                            absl::StrCat(load.fullest(), "; from 1 to its ranks, ", load.ranks()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckProfile(const v1::CostProfile& profile) {
  const v1::Grid& grid = profile.grid();
  PENSTOCK_RETURN_IF_ERROR(CheckAxis("grid.micro_batch_size", grid.micro_batch_size()));
  PENSTOCK_RETURN_IF_ERROR(CheckAxis("grid.source_length", grid.source_length()));
  PENSTOCK_RETURN_IF_ERROR(CheckAxis("grid.target_length", grid.target_length()));
  for (int i = 0; i < profile.layers_size(); ++i) {
    const v1::LayerCost& layer = profile.layers(i);
    PENSTOCK_RETURN_IF_ERROR(
        CheckLayer(absl::StrCat("layers[", i, "]"), layer, GridPoints(grid, layer.name())));
  }
  PENSTOCK_RETURN_IF_ERROR(
      Check("embedding_parameter_bytes", profile.embedding_parameter_bytes(), kParameterBytes));
  PENSTOCK_RETURN_IF_ERROR(CheckTimeOfTokens("embedding_forward", profile.embedding_forward()));
  const double state = profile.state_bytes_per_parameter_byte();
  const double sharded = profile.sharded_state_bytes_per_parameter_byte();
  PENSTOCK_RETURN_IF_ERROR(Check("state_bytes_per_parameter_byte", state, kStateRatio));
  PENSTOCK_RETURN_IF_ERROR(Check("sharded_state_bytes_per_parameter_byte", sharded, kStateRatio));
  if (sharded > state) {
    return WrongInProfile("sharded_state_bytes_per_parameter_byte",
                          "is a part of state_bytes_per_parameter_byte");
  }
  PENSTOCK_RETURN_IF_ERROR(
      Check("optimizer_ns_per_parameter_byte", profile.optimizer_ns_per_parameter_byte(), kOptimizerNs));
  PENSTOCK_RETURN_IF_ERROR(Check("optimizer_fixed_ns", profile.optimizer_fixed_ns(), kPassNs));
  PENSTOCK_RETURN_IF_ERROR(CheckSlowRanks(profile));
  PENSTOCK_RETURN_IF_ERROR(CheckSlowLinks(profile));
  PENSTOCK_RETURN_IF_ERROR(CheckExpertLoads(profile));
  PENSTOCK_RETURN_IF_ERROR(Check("pass_noise", profile.pass_noise(), kNoise));
  PENSTOCK_RETURN_IF_ERROR(Check("waiting_share", profile.waiting_share(), kShare));
  if (profile.waiting_share() == 1) return WrongInProfile("waiting_share", "1; nothing would be left");
  PENSTOCK_RETURN_IF_ERROR(Check("training_factor", profile.training_factor(), kTrainingFactor));
  return CheckCluster(profile.cluster());
}

}  // namespace penstock::core
