// What a model costs on this machine, as plain values; units as in proto/penstock/v1/cost_profile.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::worker {

// Sums over the rows of a micro-batch, of tokens as they are computed: s source, u target. A decoder-only
// model has no source.
struct TokenFigures {
  double source = 0;
  double target = 0;
  double source_square = 0;
  double target_square = 0;
  // Sum of s * u.
  double cross = 0;
  // Rows of a packed micro-batch; 0 of a rectangle.
  double packed_rows = 0;
  // Squares of the lengths that attention is called with: of each packed row, of one row of a rectangle.
  double source_call_square = 0;
  double target_call_square = 0;
  // Rows that context ranks divide and the measured one has a part of.
  double divided_rows = 0;
};

// v1::EfficiencyPoint.
struct EfficiencyPoint {
  double tokens = 0;
  double factor = 1;
};

// v1::LayerTime.
struct MeasuredTime {
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
  // Ascending by tokens; half_efficiency_tokens is 0 where there are some.
  std::vector<EfficiencyPoint> efficiency = {};

  void Scale(double by) {
    for (double* time :
         {&fixed_ns, &target_token_ns, &target_square_ns, &cross_ns, &source_token_ns, &source_square_ns,
          &packed_row_ns, &target_call_square_ns, &source_call_square_ns, &divided_row_ns})
      *time *= by;
  }

  // By what the terms of tokens are multiplied among so many.
  double TokenFactor(double tokens) const {
    if (efficiency.empty()) return 1;
    if (tokens <= efficiency.front().tokens) return efficiency.front().factor;
    for (size_t i = 1; i < efficiency.size(); ++i) {
      const auto& [low, high] = std::pair(efficiency[i - 1], efficiency[i]);
      if (tokens >= high.tokens) continue;
      return low.factor + (tokens - low.tokens) / (high.tokens - low.tokens) * (high.factor - low.factor);
    }
    return efficiency.back().factor;
  }

  double operator()(const TokenFigures& tokens) const {
    double time = fixed_ns + packed_row_ns * tokens.packed_rows +
                  target_call_square_ns * tokens.target_call_square +
                  source_call_square_ns * tokens.source_call_square + divided_row_ns * tokens.divided_rows;
    if (tokens.target > 0) {
      time += (target_token_ns * tokens.target * TokenFactor(tokens.target) +
               target_square_ns * tokens.target_square + cross_ns * tokens.cross) *
              (1 + half_efficiency_tokens / tokens.target);
    }
    if (tokens.source > 0) {
      time += (source_token_ns * tokens.source * TokenFactor(tokens.source) +
               source_square_ns * tokens.source_square) *
              (1 + half_efficiency_tokens / tokens.source);
    }
    return time;
  }
};

// Bytes for each token computed.
struct TokenBytes {
  double source = 0;
  double target = 0;
};

struct LayerBytes {
  TokenBytes stored_none;
  TokenBytes stored_selective;
  TokenBytes stored_full;
  TokenBytes peak;
  // Not of a head.
  TokenBytes split_backward_peak = {};
};

// v1::TensorCost.
struct TensorTime {
  int degree = 0;
  // Ranks that divide the experts.
  int expert = 1;
  // Forward and backward pass of the whole layer / (degree * those of one rank's part): the median of some
  // shapes.
  double efficiency = 0;
  MeasuredTime forward;
};

// Of a backward pass without recompute: BACKWARD_INPUT and BACKWARD_WEIGHT, which together take what BACKWARD
// takes.
struct MeasuredBackward {
  MeasuredTime input;
  MeasuredTime weight;
};

struct MeasuredLayer {
  double parameter_bytes = 0;
  MeasuredTime forward;
  // Not of a head.
  std::optional<MeasuredBackward> backward;
  // Time of the backward pass / forward pass.
  double backward_ratio_none = 0;
  double backward_ratio_selective = 0;
  double backward_ratio_full = 0;
  // BACKWARD_INPUT / (BACKWARD_INPUT + BACKWARD_WEIGHT).
  double backward_input_share = 0;
  LayerBytes bytes;
  // By degree, ascending.
  std::vector<TensorTime> tensor = {};

  void Scale(double by) {
    forward.Scale(by);
    if (backward.has_value()) {
      backward->input.Scale(by);
      backward->weight.Scale(by);
    }
    for (TensorTime& time : tensor) time.forward.Scale(by);
  }
};

// The optimizer step of a rank.
struct MeasuredStep {
  // However few parameters it has.
  double fixed_ns = 0;
  // For each byte of them.
  double parameter_byte_ns = 0;

  void Scale(double by) {
    fixed_ns *= by;
    parameter_byte_ns *= by;
  }
};

struct MeasuredLink {
  double bytes_per_second = 0;
  int64_t latency_ns = 0;
};

// Of exchanges over so many ranks of this machine.
struct CollectiveOfRanks {
  uint32_t ranks = 0;
  MeasuredLink link = {};
};

// What passes exchange.
struct MeasuredCollective {
  // Over two ranks, and over all other numbers that are not measured.
  MeasuredLink link = {};
  // Ascending by ranks.
  std::vector<CollectiveOfRanks> by_ranks = {};
  // How much of it goes on while a rank computes, 0 to 1.
  double overlap = 0;
};

struct MeasuredProfile {
  // T5.
  std::optional<MeasuredLayer> encoder;
  // T5's decoder layer, or the layer of a decoder-only model.
  MeasuredLayer layer;
  // Of a model with experts that some layers have not: such a layer. `layer` is then one that has some.
  std::optional<MeasuredLayer> dense = {};
  MeasuredLayer head;
  double embedding_parameter_bytes = 0;
  MeasuredTime embedding_forward;
  double state_bytes_per_parameter_byte = 0;
  double sharded_state_bytes_per_parameter_byte = 0;
  MeasuredStep step;
  // Between two ranks of this machine, of transfers and of what passes exchange. The latter link is all 0
  // where it was not measured.
  MeasuredLink link;
  MeasuredCollective collective;
  // In memory; 0: not measured.
  double copy_bytes_per_second = 0;
  int64_t memory_bytes = 0;
  // Of a layer's repeats, as a share of its time: the median over the shapes.
  double spread = 0;
  // Where bytes of layers are not those that are counted from their tensors, for people; empty: nowhere.
  std::string memory_differences = {};
  // What kept the measuring thread from its core, for people; empty: nothing.
  std::string disturbance = {};
};

}  // namespace penstock::worker
