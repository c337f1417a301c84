// A cost profile as plain values; proto/penstock/v1/cost_profile.proto explains each. Times in nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/core/model/attention_windows.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/topology/layer_kind.h"

namespace penstock::core {

// See v1::EfficiencyPoint.
struct EfficiencyPoint {
  double tokens = 0;
  double factor = 1;
};

// What a table of efficiency (ascending, not empty) says for so many tokens.
double FactorOfTable(const std::vector<EfficiencyPoint>& efficiency, double tokens);
// The same; 1 of an empty one, which most are.
inline double FactorAt(const std::vector<EfficiencyPoint>& efficiency, double tokens) {
  return efficiency.empty() ? 1 : FactorOfTable(efficiency, tokens);
}

struct LayerTime {
  double fixed_ns = 0;
  double target_token_ns = 0;
  double target_square_ns = 0;
  double cross_ns = 0;
  double source_token_ns = 0;
  double source_square_ns = 0;
  double half_efficiency_tokens = 0;
  double packed_row_ns = 0;
  double target_call_square_ns = 0;
  double source_call_square_ns = 0;
  double divided_row_ns = 0;
  // Ascending by tokens. Empty: a token takes as long among many as among few.
  std::vector<EfficiencyPoint> efficiency = {};

  // The formula of v1::LayerTime. Nothing for a micro-batch without tokens but `fixed_ns`.
  double operator()(const TokenSums& sums) const;
  // By what the terms of tokens are multiplied among so many of one side; infinity: in an endless
  // micro-batch.
  double TokenFactor(double tokens) const { return FactorAt(efficiency, tokens); }
  // Without a table of efficiency, from below: each token takes what it takes among as many as suit it best.
  LayerTime AtBestEfficiency() const;
};

struct LayerBytes {
  double source_token_bytes = 0;
  double target_token_bytes = 0;

  int64_t operator()(const TokenSums& sums) const;
};

// A layer that is divided over tensor ranks, or whose experts ranks divide: what one of them computes.
struct TensorCost {
  int32_t degree = 0;
  int32_t expert = 1;
  // The whole layer's time / (degree * efficiency); with `measured`, `forward` is one rank's own closed form.
  double efficiency = 1;
  bool measured = false;
  LayerTime forward;
};

// The two parts of a backward pass without recompute: gradients of inputs, and gradients of weights.
struct BackwardForms {
  LayerTime input;
  LayerTime weight;
};

// Which axes a table has, in this order of nesting: rows, source length, target length.
enum class TableAxes : uint8_t { kTarget, kSource, kSourceTarget };

struct LayerProfile {
  bool present = false;
  double parameter_bytes = 0;
  bool has_closed_form = false;
  LayerTime forward;
  // By RecomputeLevel, in units of the forward pass.
  std::array<double, kRecomputeLevels> backward_ratio = {};
  double backward_input_share = 0;
  // Instead of ratio and share, which then say only what recompute adds; with a closed form and no tables.
  std::optional<BackwardForms> backward_forms;
  // Runs at the positions that the loss counts (LossPositions), not at every token.
  bool loss_tokens_only = false;
  std::array<LayerBytes, kRecomputeLevels> stored = {};
  LayerBytes peak;
  // Beside what is kept and put aside; empty: not known.
  std::optional<LayerBytes> split_backward_peak;
  // Whether the level kKeepSelective was profiled.
  bool has_selective = false;

  TableAxes axes = TableAxes::kTarget;
  // Empty: not profiled. NaN: this point was not profiled.
  std::vector<double> forward_table_ns;
  std::array<std::vector<double>, kRecomputeLevels> backward_table_ns;

  // Ascending in the degree, then in the expert ranks.
  std::vector<TensorCost> tensor;

  // Of so many expert ranks, or if there is none, without them. Null: the profile has no figures for the
  // degree.
  const TensorCost* AtDegree(int32_t degree, int32_t expert) const;

  // Whether `peak` has gradients, as that of a worker's profile: it is above what the layer keeps without
  // recompute. In the reference's formulas it is the same.
  bool peak_has_gradients() const;
};

// Ascending.
struct Grid {
  std::vector<double> rows;
  std::vector<double> source_length;
  std::vector<double> target_length;
};

// See v1::CollectiveSpeed.
struct CollectiveSpeed {
  int32_t ranks = 0;
  double bytes_per_second = 0;
  int64_t latency_ns = 0;
};

struct Cluster {
  int64_t memory_bytes = 0;
  double intra_node_bytes_per_second = 0;
  double inter_node_bytes_per_second = 0;
  int64_t intra_node_latency_ns = 0;
  int64_t inter_node_latency_ns = 0;
  int32_t gpus_per_node = 1;
  // Of collectives inside passes.
  double intra_node_collective_bytes_per_second = 0;
  double inter_node_collective_bytes_per_second = 0;
  int64_t intra_node_collective_latency_ns = 0;
  int64_t inter_node_collective_latency_ns = 0;
  // Of these over so many ranks of one node, in place of the former two; ascending by ranks.
  std::vector<CollectiveSpeed> collective_speeds;
  // Keys and values of divided rows travel while their attention runs.
  bool attention_hides_exchange = false;
  // How much of an exchange of rows of experts goes on while a rank computes, 0 to 1.
  double exchange_overlap = 0;
  // Inside the memory of an accelerator, each read and written once; 0: not known.
  double copy_bytes_per_second = 0;
};

struct SlowRank {
  int32_t rank = 0;
  // Above 1.
  double factor = 1;
};

// See v1::SlowLink.
struct SlowLink {
  int32_t from = 0;
  int32_t to = 0;
  // Above 1.
  double factor = 1;
};

// See v1::ExpertLoad.
struct ExpertLoad {
  int32_t ranks = 0;
  double fullest = 1;
};

struct Profile {
  uint64_t version = 0;
  // Of the model that it is of.
  AttentionWindows windows;
  Grid grid;
  std::array<LayerProfile, kLayerKinds> layers;
  double embedding_parameter_bytes = 0;
  LayerTime embedding_forward;
  double state_bytes_per_parameter_byte = 0;
  double sharded_state_bytes_per_parameter_byte = 0;
  double optimizer_ns_per_parameter_byte = 0;
  // Of a rank's step, once.
  double optimizer_fixed_ns = 0;
  Cluster cluster;
  // Ascending by rank.
  std::vector<SlowRank> slow_ranks;
  // Ascending by `from`, then `to`.
  std::vector<SlowLink> slow_links;
  // Standard deviation of the logarithm of what passes take over what they are said to. 0: they are exact.
  double pass_noise = 0;
  // Ascending by ranks. Empty in a profile that is loaded (loaded_experts.h).
  std::vector<ExpertLoad> expert_loads;
  // Of the mesh that it is loaded for: rows of the fullest of the ranks that divide the experts, over an even
  // share.
  double fullest_experts = 1;

  // Whether every layer has one, which packed micro-batches need.
  bool has_closed_form() const {
    for (const LayerProfile& layer : layers) {
      if (layer.present && !layer.has_closed_form) return false;
    }
    return true;
  }
};

}  // namespace penstock::core
