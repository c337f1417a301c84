// Hydraulis' two stages for a batch on given replicas (Li et al. 2024, section 5.2): which replica has which
// samples, and which of them go through its pipeline together.
//
// Both are integer programmes there; its public code solves the first by greedy tries, the second by a solver
// with 0.5 s for each number of micro-batches, and a longest-first greedy comes within 0.3 % of what that
// finds. Here the first is the better one of 50 tries in random order and of longest first, the second is
// longest first with improvements.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "tests/bench/strategies/hydraulis/scheme.h"

namespace penstock::hydraulis {

// Indices of samples, by micro-batch.
using MicroBatches = std::vector<std::vector<uint32_t>>;

// When the last replica ends, by the objective of the first stage: what its samples add up to, and the
// longest of them for every stage but one. Nanoseconds.
double DispatchedNs(absl::Span<const Scheme* const> replicas, absl::Span<const int64_t> lengths,
                    absl::Span<const int> replica_of_sample);

// By sample. Empty where some sample is longer than all replicas take.
std::vector<int> Dispatch(absl::Span<const Scheme* const> replicas, absl::Span<const int64_t> lengths);

// `count` micro-batches of at most the scheme's tokens each, whose longest is short. Nothing where that is
// not found.
std::optional<MicroBatches> Pack(const Scheme& scheme, absl::Span<const int64_t> lengths,
                                 absl::Span<const uint32_t> samples, int count);

struct PackedReplica {
  // The longest first; without empty ones.
  MicroBatches micro_batches;
  // As the second stage reckons: (longest micro-batch) x (stages - 1 + micro-batches).
  double ns = 0;
};

// With the best number of micro-batches, of the fewest that could do and 20 more.
std::optional<PackedReplica> PackReplica(const Scheme& scheme, absl::Span<const int64_t> lengths,
                                         absl::Span<const uint32_t> samples);

struct AssignedBatch {
  // In the order of the mix.
  std::vector<PackedReplica> replicas;
  double ns = 0;
};

// Nothing where the mix cannot hold the samples.
std::optional<AssignedBatch> Assign(absl::Span<const Scheme> schemes, const Mix& mix,
                                    absl::Span<const int64_t> lengths);

}  // namespace penstock::hydraulis
