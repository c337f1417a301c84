// What the passes of a stage exchange with the other ranks of their stage group.
//
//   const at::Tensor gathered = group.GatherRows(normalised, rows);      // tensor ranks: before a divided
//   layer const at::Tensor own = group.SumRows(partial);                       // and behind it const
//   at::Tensor keys = group.ExchangeRows(sent, sent_rows, received_rows);   // context ranks
//   ... at the end of the pass ...
//   PENSTOCK_RETURN_IF_ERROR(group.status());
//
// All ranks that a call is among make it in the same order, with rows that fit each other. On a CPU a call
// blocks, on a GPU the current stream waits. Sums have the same bits on all ranks and in every run.
//
// A call that fails (a peer is gone, aborted) returns zeros of the right shape, and so do all after it at
// once: passes need not look at each one, but must ask status() before their results are used.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "worker/program/group_place.h"

namespace penstock::worker {

// What a rank does while it waits; may be empty.
using Meanwhile = std::function<void()>;

class StageGroup {
 public:
  virtual ~StageGroup() = default;

  virtual GroupPlace place() const = 0;

  // Over the tensor ranks of this context rank, which divide rows as ShardOf says (worker/comm/shard.h).
  // Own rows, [size of the shard of `rows`, ...], to those of all, [rows, ...].
  virtual at::Tensor GatherRows(const at::Tensor& own, int64_t rows) = 0;
  // What each of them has for all rows, [rows, ...], to the sum for own rows.
  virtual at::Tensor SumRows(const at::Tensor& partial) = 0;
  // In place, on all of them. Contiguous.
  virtual void SumOverTensorRanks(at::Tensor& values) = 0;
  virtual void MaxOverTensorRanks(at::Tensor& values) = 0;

  // Over the context ranks of this tensor rank. `rows`: contiguous, [sum of sent, ...], for context rank 0,
  // then 1, ...; what they send to this one likewise, [sum of received, ...]. Numbers of rows, one for each
  // context rank, may be 0.
  virtual at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                  const std::vector<int64_t>& received) = 0;
  // The same over those that divide the experts with this rank, in their order. `meanwhile` runs once, when
  // the exchange has begun and before it is waited for, and makes no call of the group.
  virtual at::Tensor ExchangeExpertRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                        const std::vector<int64_t>& received, const Meanwhile& meanwhile) = 0;
  // How many rows this rank has for each expert of the model, [experts], int64, to how many each of those
  // ranks has for each of this rank's experts: rank by rank, of each expert by expert.
  virtual at::Tensor ExchangeExpertCounts(const at::Tensor& counts) = 0;

  // The first error of a call. Possible errors: UNAVAILABLE (names the peer), CANCELLED, INTERNAL.
  virtual absl::Status status() const = 0;
};

// A stage that one rank holds: nothing is exchanged. Never fails; lives for ever.
StageGroup& SoleRank();

}  // namespace penstock::worker
