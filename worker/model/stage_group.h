// What the passes of a stage exchange with the other ranks of their stage group.
//
//   const at::Tensor gathered = group.GatherRows(normalised, rows);      // tensor ranks: before a divided
//   layer const at::Tensor own = group.SumRows(partial, rows);                 // and behind it const
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
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/comm/shard.h"
#include "worker/program/group_place.h"

namespace penstock::worker {

// Rows that are on their way, to this rank and from it. Whoever destroys it unasked waits for them first: no
// memory is given back that others read or write. The rank that has begun least of a group's exchanges gets
// all that it waits for, so this ends, too.
class PendingRows {
 public:
  virtual ~PendingRows() = default;
  // Once: the rows that have come. CPU: blocks. GPU: the current stream waits.
  virtual at::Tensor Wait() = 0;
};

// Rows that are there.
class ArrivedRows : public PendingRows {
 public:
  explicit ArrivedRows(at::Tensor rows) : rows_(std::move(rows)) {}
  at::Tensor Wait() override { return std::move(rows_); }

 private:
  at::Tensor rows_;
};

class StageGroup {
 public:
  virtual ~StageGroup() = default;

  virtual GroupPlace place() const = 0;

  // Over the tensor ranks of this context rank, which divide rows as ShardOf says (worker/comm/shard.h).
  // Own rows, [size of the shard of `rows`, ...], to those of all, [rows, ...].
  virtual at::Tensor GatherRows(const at::Tensor& own, const ListedRows& rows) = 0;
  // What each of them has for all `rows`, [rows, ...], to the sum for own rows.
  virtual at::Tensor SumRows(const at::Tensor& partial, const ListedRows& rows) = 0;
  // In place, on all of them. Contiguous.
  virtual void SumOverTensorRanks(at::Tensor& values) = 0;
  virtual void MaxOverTensorRanks(at::Tensor& values) = 0;

  // Over the context ranks of this tensor rank. `rows`: contiguous, [sum of sent, ...], for context rank 0,
  // then 1, ...; what they send to this one likewise, [sum of received, ...]. Numbers of rows, one for each
  // context rank, may be 0.
  virtual at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                  const std::vector<int64_t>& received) = 0;
  // The same, waited for apart: whatever is computed meanwhile hides it. `rows` must not change until then.
  // What is returned must not outlive the group.
  virtual std::unique_ptr<PendingRows> StartRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                                 const std::vector<int64_t>& received) {
    return std::make_unique<ArrivedRows>(ExchangeRows(rows, sent, received));
  }
  // StartRows over those that divide the experts with this rank, in their order; other calls, of this kind
  // too, may be made before it is waited for.
  virtual std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows,
                                                       const std::vector<int64_t>& sent,
                                                       const std::vector<int64_t>& received) = 0;
  // How many rows this rank has for each expert of the model, [experts], int64, to how many each of those
  // ranks has for each of this rank's experts: rank by rank, of each expert by expert.
  virtual at::Tensor ExchangeExpertCounts(const at::Tensor& counts) = 0;

  // For how long calls, and waits for their rows, have blocked since this was asked last, nanoseconds: what a
  // rank on a CPU waited for the others. 0 where calls do not block.
  virtual int64_t TakeWaitedNs() { return 0; }

  // The first error of a call. Possible errors: UNAVAILABLE (names the peer), CANCELLED, INTERNAL.
  virtual absl::Status status() const = 0;
};

// A stage that one rank holds: nothing is exchanged. Never fails; lives for ever.
StageGroup& SoleRank();

}  // namespace penstock::worker
