// A rank of a stage group without the others, to measure what it computes: what it would get from them is
// there at once, in numbers that nobody has computed.
//
//   LoneRank rank({.tensor = 0, .tensors = 4});
//   PENSTOCK_ASSIGN_OR_RETURN(auto stage, MakeTransformerStage(config, range, seed, device, rank));
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "worker/model/stage_group.h"

namespace penstock::worker {

// Never fails. What it gives is valid until its next call.
class LoneRank : public StageGroup {
 public:
  explicit LoneRank(const GroupPlace& place) : place_(place) {}

  GroupPlace place() const override { return place_; }
  at::Tensor GatherRows(const at::Tensor& own, const ListedRows& rows) override;
  at::Tensor SumRows(const at::Tensor& partial, const ListedRows& rows) override;
  void SumOverTensorRanks(at::Tensor&) override {}
  void MaxOverTensorRanks(at::Tensor&) override {}
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                          const std::vector<int64_t>& received) override;
  std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                               const std::vector<int64_t>& received) override;
  // As if all had as many as this rank has.
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override;
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  // So many rows like those of `like`. Nobody writes to what the others have sent, so that there is one of
  // each type.
  at::Tensor Rows(const at::Tensor& like, int64_t rows);

  const GroupPlace place_;
  std::map<at::ScalarType, at::Tensor> numbers_;
};

}  // namespace penstock::worker
