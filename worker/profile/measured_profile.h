// What a model costs on this machine, as plain values; units as in proto/penstock/v1/cost_profile.proto.
#pragma once

#include <cstdint>

namespace penstock::worker {

// fixed + (token * t + square * sum(u_i^2)) * (1 + half_efficiency / t), nanoseconds; u_i: tokens of row i as
// they are computed, t: their sum.
struct MeasuredTime {
  double fixed_ns = 0;
  double token_ns = 0;
  double square_ns = 0;
  double half_efficiency_tokens = 0;

  double operator()(double tokens, double squares) const {
    return fixed_ns + (token_ns * tokens + square_ns * squares) * (1 + half_efficiency_tokens / tokens);
  }
};

// Bytes for each token computed.
struct TokenBytes {
  double stored_none = 0;
  double stored_full = 0;
  double peak = 0;
};

struct MeasuredLayer {
  double parameter_bytes = 0;
  MeasuredTime forward;
  // Time of the backward pass / forward pass, without recompute and with full recompute.
  double backward_ratio_none = 0;
  double backward_ratio_full = 0;
  TokenBytes bytes;
};

struct MeasuredLink {
  double bytes_per_second = 0;
  int64_t latency_ns = 0;
};

struct MeasuredProfile {
  MeasuredLayer layer;
  MeasuredLayer head;
  double embedding_parameter_bytes = 0;
  MeasuredTime embedding_forward;
  double state_bytes_per_parameter_byte = 0;
  double sharded_state_bytes_per_parameter_byte = 0;
  double optimizer_ns_per_parameter_byte = 0;
  // Between two ranks of this machine.
  MeasuredLink link;
  int64_t memory_bytes = 0;
};

}  // namespace penstock::worker
