// Which part of a stage's parameters the optimizer of a rank updates, and keeps a state for: all of them, or
// its replica's share (ZeRO stage 1; Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training
// trillion parameter models", section 5.1).
//
// Each span of a stage's flat buffers is cut into as many shards as there are replicas (worker/comm/shard.h).
// With a divided state, gradients are reduce-scattered, each replica updates its own shards, and parameters
// are all-gathered; nothing else differs, so that both give the same bits.
#pragma once

#include <vector>

#include "worker/comm/shard.h"
#include "worker/model/flat_parameters.h"

namespace penstock::worker {

struct Sharding {
  // Shards of a span: its holders, replica by replica and in each in the order of the stage group.
  int count = 1;
  // That of this rank.
  int own = 0;
  // False: every replica updates all shards.
  bool divided = false;
  // What several tensor ranks have, which all of them update alike, is counted and written by the first.
  int tensor_rank = 0;

  bool Updates(int shard) const { return !divided || shard == own; }
};

// Those of a rank, by who has the same parameters.
struct Shardings {
  Sharding of_tensor_rank = {};
  Sharding of_experts = {};

  const Sharding& Of(Holders holders) const {
    return holders == Holders::kOfExperts ? of_experts : of_tensor_rank;
  }
};

// Shard `index` of a span, in elements of the flat buffer.
inline FlatSpan ShardOfSpan(const FlatSpan& span, int index, int count) {
  const Shard shard = ShardOf(span.size(), index, count);
  return {span.begin + shard.begin, span.begin + shard.end, span.holders};
}

// What of a span is updated here.
inline FlatSpan UpdatedPart(const FlatSpan& span, const Sharding& sharding) {
  return sharding.divided ? ShardOfSpan(span, sharding.own, sharding.count) : span;
}
inline FlatSpan UpdatedPart(const FlatSpan& span, const Shardings& shardings) {
  return UpdatedPart(span, shardings.Of(span.holders));
}

}  // namespace penstock::worker
