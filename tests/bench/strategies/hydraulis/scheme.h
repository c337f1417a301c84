// One pipeline as Hydraulis knows it (Li et al. 2024, "Hydraulis", section 5): its degrees, what a sample
// takes on its busiest stage, and how long a packed micro-batch may be.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::hydraulis {

struct Scheme {
  int tensor = 1;
  int pipeline = 1;
  // All layers keep their input alone. The published schemes never do; ours may, or few could hold the
  // longest samples of this model.
  bool recomputes = false;
  // Both passes of a micro-batch of one sample of s tokens on the busiest stage, nanoseconds:
  // square_ns s^2 + token_ns s + once_ns.
  double square_ns = 0;
  double token_ns = 0;
  double once_ns = 0;
  // Of a packed micro-batch, and of a sample.
  int64_t most_tokens = 0;

  int ranks() const { return tensor * pipeline; }
  // What a sample adds to a micro-batch.
  double WorkNs(int64_t tokens) const {
    const auto s = static_cast<double>(tokens);
    return square_ns * s * s + token_ns * s;
  }
  double AloneNs(int64_t tokens) const { return WorkNs(tokens) + once_ns; }
};

// Replicas that look alike.
struct ReplicaGroup {
  // Index of the scheme.
  int scheme = 0;
  int replicas = 0;
  friend auto operator<=>(const ReplicaGroup&, const ReplicaGroup&) = default;
};

// A strategy: replicas side by side, the largest stage groups first, each scheme once.
using Mix = std::vector<ReplicaGroup>;

}  // namespace penstock::hydraulis
